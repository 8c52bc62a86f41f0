"""Three real nodes under kill -9, SIGSTOP, SIGTERM and restarts: what was acknowledged stays, and clients go on."""

import contextlib
import gzip
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.interop.cluster_clients import (
    PASSING,
    GroupMember,
    ProduceLoad,
    TopicCreations,
    TransactionLoad,
    admin_of,
    create_on,
    create_topic,
)
from tests.interop.cluster_nodes import OTTLA, ClusterNode
from tests.interop.clusters import FIRST_CONTROLLER_ID, Cluster, combined, run_cluster, separate
from tests.interop.kio_client import KioClient, errors_in
from tests.interop.librdkafka import produce_values, read_records
from tests.interop.wire import PRODUCE, batch, record

from ottla.records.compression import GZIP
from ottla.records.header import read_header

pytestmark = pytest.mark.slow

PARTITIONS = 3
Record = Callable[[str, object], None]
Fault = Callable[[ClusterNode], None]
FAULTS = pytest.mark.parametrize("fault", [ClusterNode.kill, ClusterNode.pause], ids=["kill -9", "SIGSTOP"])


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with run_cluster(tmp_path_factory.mktemp("c"), combined(3)) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    """The shared cluster with all nodes; a test may kill, pause and stop them."""
    three_nodes.restore()
    return three_nodes


@pytest.fixture
def topic(cluster: Cluster, topic_name: str) -> str:
    return create_topic(cluster, topic_name, PARTITIONS, min_insync_replicas=2)


@FAULTS
def test_topics_can_be_created_again_after_the_loss_of_the_active_controller(
    cluster: Cluster, topic_name: str, fault: Fault, record_property: Record
) -> None:
    with TopicCreations(cluster, topic_name, replicas=2) as creations:
        creations.wait_for_more()
        lost = cluster.controller_id()
        fault(cluster.nodes[lost])
        assert cluster.controller_id(other_than=lost) != lost
        creations.wait_for_more()
        cluster.restore()
        creations.wait_for_more()
    record_property("latency", f"longest topic creation over {fault.__name__}: {creations.longest_s:.1f} s")
    for node in cluster.brokers:
        cluster.wait_until(
            lambda id=node.node_id: cluster.knows(id, creations.created),  # type: ignore[misc]
            f"{node} knows all topics",
        )


@FAULTS
def test_acknowledged_records_survive_the_loss_of_their_leader(
    cluster: Cluster, topic: str, fault: Fault, record_property: Record
) -> None:
    with ProduceLoad(cluster, topic, PARTITIONS) as load:
        load.wait_for_more()
        lost = cluster.leader_of(topic)
        began = time.monotonic()
        fault(cluster.nodes[lost])
        cluster.leader_of(topic, other_than=lost)
        elected_s = time.monotonic() - began
        load.wait_for_more()
        cluster.restore()
        cluster.wait_until_in_sync(topic)
        load.wait_for_more()
        load.finish()
    record_property(
        "latency",
        f"{fault.__name__} of a leader: another after {elected_s:.1f} s, "
        f"longest time without an acknowledged record {load.longest_gap_s():.1f} s",
    )
    load.check()


def test_acknowledged_records_survive_the_loss_of_one_node_after_the_other(
    cluster: Cluster, topic: str
) -> None:
    """Also of the active controller: two of three nodes remain, and the lost one is back before the next."""
    with ProduceLoad(cluster, topic, PARTITIONS) as load:
        for node in cluster.nodes.values():
            load.wait_for_more()
            node.kill()
            load.wait_for_more()
            cluster.restart(node.node_id)
            cluster.wait_until_in_sync(topic)
        load.finish()
    load.check()


def test_a_group_goes_on_when_the_broker_of_its_coordinator_dies(
    cluster: Cluster, topic: str, group_id: str, record_property: Record
) -> None:
    with ProduceLoad(cluster, topic, PARTITIONS) as load, GroupMember(cluster, group_id, topic) as member:
        member.wait_for_more()
        cluster.wait_until_in_sync("__consumer_offsets")
        lost = cluster.coordinator_id(group_id)
        began = time.monotonic()
        cluster.nodes[lost].kill()
        cluster.wait_until(lambda: cluster.coordinator_id(group_id) != lost, "the group has moved")
        moved_s = time.monotonic() - began
        load.wait_for_more()
        load.finish()
        sent = set(load.acknowledged)
        cluster.wait_until(
            lambda: all(set(load.acknowledged[p]) <= set(member.read[p]) for p in sent), "all are read"
        )
    record_property("latency", f"kill of a group's coordinator: another after {moved_s:.1f} s")
    assert _committed(cluster, group_id) == {p: len(load.acknowledged[p]) for p in sent}
    with GroupMember(cluster, group_id, topic) as successor:
        cluster.wait_until(lambda: _is_stable(cluster, group_id), "the successor has its partitions")
        assert successor.count() == 0


def test_transactions_survive_the_loss_of_their_coordinator_and_of_a_leader(
    cluster: Cluster, topic: str, transactional_id: str
) -> None:
    with TransactionLoad(cluster, topic, transactional_id, PARTITIONS) as load:
        load.wait_for_more()
        cluster.wait_until_in_sync("__transaction_state")
        for find in (
            lambda: cluster.coordinator_id(transactional_id, of_transactions=True),
            lambda: cluster.leader_of(topic),
        ):
            lost = find()
            cluster.nodes[lost].kill()
            load.wait_for_more()
            cluster.restart(lost)
            cluster.wait_until_in_sync("__transaction_state", topic)
        load.finish()
    assert load.aborted
    load.check()


def test_a_restarted_broker_returns_to_all_in_sync_replicas(
    cluster: Cluster, topic: str, record_property: Record
) -> None:
    lost = cluster.leader_of(topic)
    cluster.nodes[lost].kill()
    with ProduceLoad(cluster, topic, PARTITIONS) as load:
        load.wait_for_more(2_000)
        load.finish()
    cluster.wait_until(
        lambda: all(lost not in partition.isr for partition in cluster.partitions(topic).values()),
        "no ISR has the dead broker",
    )
    began = time.monotonic()
    cluster.restart(lost)
    cluster.wait_until_in_sync(topic)
    record_property("latency", f"back in all ISRs {time.monotonic() - began:.1f} s after the start")
    files = [[node.log_files(topic, p) for p in range(PARTITIONS)] for node in cluster.brokers]
    assert files[0] == files[1] == files[2]
    load.check()


def test_a_controlled_shutdown_moves_the_leaders_first(
    cluster: Cluster, topic: str, record_property: Record
) -> None:
    with ProduceLoad(cluster, topic, PARTITIONS) as load:
        load.wait_for_more()
        leaving = cluster.leader_of(topic)
        assert cluster.nodes[leaving].stop() == 0
        # The node has ended, and no session has: its partitions have other leaders already, as the others learn. Had
        # the end of its session moved them, the longest time below would be longer.
        for partition in range(PARTITIONS):
            cluster.leader_of(topic, partition, other_than=leaving)
        load.wait_for_more()
        load.finish()
    record_property("latency", f"SIGTERM: longest time without a record {load.longest_gap_s():.1f} s")
    assert load.longest_gap_s() < 2
    load.check()


def test_a_rolling_restart_under_load_loses_nothing(
    cluster: Cluster, topic: str, group_id: str, record_property: Record
) -> None:
    with ProduceLoad(cluster, topic, PARTITIONS) as load, GroupMember(cluster, group_id, topic) as member:
        member.wait_for_more()
        for node in cluster.nodes.values():
            assert node.stop() == 0
            load.wait_for_more()
            cluster.restart(node.node_id)
            cluster.wait_until_in_sync(topic, "__consumer_offsets")
        load.wait_for_more()
        load.finish()
        cluster.wait_until(
            lambda: all(set(load.acknowledged[p]) <= set(member.read[p]) for p in range(PARTITIONS)),
            "the group has read everything",
        )
    record_property("latency", f"rolling restart: longest time without a record {load.longest_gap_s():.1f} s")
    load.check()


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[Cluster]:
    """A controller of its own, and the brokers 1 (A in seed 003) and 2 (B)."""
    # A topic whose config enables unclean elections later gets one within this time. Kafka's default is five minutes.
    interval = {"unclean.leader.election.interval.ms": "1000"}
    with run_cluster(tmp_path, separate(2, 1, broker_kind=OTTLA, controller_kind=OTTLA), interval) as cluster:
        yield cluster


def test_replica_divergence_on_restart_after_multiple_hard_failures(
    two_brokers: Cluster, topic_name: str
) -> None:
    """003: all nodes fail, and A and B have lost different parts of compressed batches. B is back first and leads in a
    new epoch. Its next batches have the offsets of those that A still has, but not their boundaries.
    """
    cluster, (a, b) = two_brokers, two_brokers.brokers
    # None of the two is known to have everything.
    configs = {"min_insync_replicas": 1, "unclean_leader_election_enable": "true"}
    create_on(cluster, topic_name, [[1, 2]], **configs)
    for name, count in (("m1", 4), ("m2", 6), ("m2", 8)):
        _send_batch(cluster, topic_name, name, count)
    ends = _batch_ends(cluster.wait_until_copied(topic_name))
    assert [end for end, _ in ends] == [4, 10, 18]
    cluster.kill()
    _cut_log(a, topic_name, ends[1][1] + 100)  # inside the last batch
    _cut_log(b, topic_name, ends[0][1])
    cluster.nodes[FIRST_CONTROLLER_ID].start()
    b.start()
    cluster.wait_until(lambda: _leader_if_known(cluster, topic_name) == b.node_id, "B leads")
    for count in (3, 6, 6):
        _send_batch(cluster, topic_name, "m3", count)
    assert [end for end, _ in _batch_ends(b.log_files(topic_name, 0).popitem()[1])] == [4, 7, 13, 19]
    cluster.restart(a.node_id)
    cluster.wait_until_in_sync(topic_name)
    copied = cluster.wait_until_copied(topic_name)
    assert [end for end, _ in _batch_ends(copied)] == [4, 7, 13, 19]
    assert f"{topic_name}-0 is truncated from offset 10 to 4" in a.log_text()
    expected = [b"m1"] * 4 + [b"m3"] * 15
    assert [record.value() for record in read_records(cluster.bootstrap, topic_name, 19)] == expected


def test_high_watermark_truncation_followed_by_immediate_leader_election(
    tmp_path: Path, topic_name: str
) -> None:
    """003: A has m2, but does not know that it is committed. A restarts, and follows B. Then B dies."""
    sessions = {"broker.session.timeout.ms": "30000"}  # B is not fenced while it is paused
    specs = separate(2, 1, broker_kind=OTTLA, controller_kind=OTTLA)
    with run_cluster(tmp_path, specs, sessions) as cluster:
        a, b = cluster.brokers
        create_on(cluster, topic_name, [[2, 1]], min_insync_replicas=2)
        for name in ("m1", "m2"):
            produce_values(cluster.bootstrap, topic_name, [name.encode()])
        copied = cluster.wait_until_copied(topic_name)
        assert a.stop() == 0
        _set_high_watermark(a, topic_name, 1)
        b.pause()  # so that A gets no response to a fetch
        a.start()
        cluster.wait_until_ready()
        assert cluster.leader_of(topic_name) == b.node_id
        b.kill()
        assert cluster.leader_of(topic_name, other_than=b.node_id) == a.node_id
        assert b"".join(a.log_files(topic_name, 0).values()) == copied
        cluster.restart(b.node_id)
        cluster.wait_until_in_sync(topic_name)
        assert cluster.wait_until_copied(topic_name) == copied
        records = read_records(cluster.bootstrap, topic_name, 2)
        assert [record.value() for record in records] == [b"m1", b"m2"]


def test_the_first_replica_that_comes_back_leads_if_unclean_elections_are_enabled(
    two_brokers: Cluster, topic_name: str
) -> None:
    """Both choices of 003: wait for a replica of the ISR, or take the other one, and its log becomes the truth."""
    cluster, (a, b) = two_brokers, two_brokers.brokers
    names = {choice: f"{topic_name}-{choice}" for choice in ("false", "true", "later")}
    for choice, name in names.items():
        enabled = "true" if choice == "true" else "false"
        create_on(cluster, name, [[1, 2]], min_insync_replicas=1, unclean_leader_election_enable=enabled)
        produce_values(cluster.bootstrap, name, [b"m1"])
    assert b.stop() == 0
    for name in names.values():
        produce_values(cluster.bootstrap, name, [b"only in A"])
        assert cluster.partitions(name)[0].isr == (a.node_id,)
    a.kill()
    shutil.rmtree(a.data_dir)  # for good
    b.start()
    cluster.wait_until(lambda: _leader_if_known(cluster, names["true"]) == b.node_id, "B leads")
    produce_values(cluster.bootstrap, names["true"], [b"after"])
    records = read_records(cluster.bootstrap, names["true"], 2)
    assert [record.value() for record in records] == [b"m1", b"after"]
    assert {_leader_if_known(cluster, names[choice]) for choice in ("false", "later")} == {-1}
    _enable_unclean_elections(cluster, names["later"])
    cluster.wait_until(lambda: _leader_if_known(cluster, names["later"]) == b.node_id, "B leads")
    assert [record.value() for record in read_records(cluster.bootstrap, names["later"], 1)] == [b"m1"]
    assert _leader_if_known(cluster, names["false"]) == -1


def _leader_if_known(cluster: Cluster, topic: str) -> int | None:
    found = cluster.partitions(topic).get(0)
    return None if found is None else found.leader


def _enable_unclean_elections(cluster: Cluster, topic: str) -> None:
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(cluster)
    admin.incremental_alter_configs([resource])[resource].result(30)


def _send_batch(cluster: Cluster, topic: str, name: str, count: int) -> None:
    """Without a client, which may divide the records into several batches."""
    records = b"".join(record(name.encode(), offset_delta) for offset_delta in range(count))
    compressed = batch(gzip.compress(records), count, attributes=GZIP)
    topics = ({"name": topic, "partition_data": ({"index": 0, "records": compressed},)},)

    def is_sent() -> bool:
        with contextlib.closing(KioClient(cluster.nodes[cluster.leader_of(topic)].bootstrap)) as client:
            answer = client.ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=topics)
        errors = set(errors_in(answer))
        assert errors <= {"not_leader_or_follower", "unknown_topic_or_partition"}
        return not errors

    cluster.wait_until(is_sent, f"{count} records {name} are acknowledged")


def _batch_ends(data: bytes) -> Sequence[tuple[int, int]]:
    """The offset and the position after each batch of a segment."""
    ends, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        position += header.size
        ends.append((header.next_offset, position))
    return ends


def _cut_log(node: ClusterNode, topic: str, size: int) -> None:
    """What a power loss does to a segment that was not flushed."""
    (path,) = (node.data_dir / f"{topic}-0").glob("*.log")
    assert path.stat().st_size > size
    os.truncate(path, size)


def _set_high_watermark(node: ClusterNode, topic: str, offset: int) -> None:
    """As the follower has it without its last fetch."""
    path = node.data_dir / "replication-offset-checkpoint"
    text, changes = re.subn(rf"(?m)^{re.escape(topic)} 0 \d+$", f"{topic} 0 {offset}", path.read_text())
    assert changes == 1
    path.write_text(text)


def _is_stable(cluster: Cluster, group_id: str) -> bool:
    """False if its coordinator was just moving."""
    admin = admin_of(cluster)
    with contextlib.suppress(KafkaException):
        described = admin.describe_consumer_groups([group_id])[group_id].result(30)
        return bool(described.state == ConsumerGroupState.STABLE)
    return False


def _committed(cluster: Cluster, group_id: str) -> dict[int, int]:
    """Asks again if its coordinator was just moving."""

    def find() -> dict[int, int] | None:
        admin = admin_of(cluster)  # it ends its requests with itself
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
        try:
            offsets = asked[group_id].result(30).topic_partitions
        except KafkaException as error:
            if error.args[0].code() not in PASSING:
                raise
            return None
        return {p.partition: p.offset for p in offsets}

    return cluster.wait_for(find, f"the offsets of {group_id} are known")
