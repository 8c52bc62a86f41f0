"""Three real nodes under kill -9, SIGSTOP, SIGTERM and restarts: what was acknowledged stays, and clients go on."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from tests.interop.cluster_clients import (
    PASSING,
    GroupMember,
    ProduceLoad,
    TopicCreations,
    TransactionLoad,
    admin_of,
    create_topic,
)
from tests.interop.cluster_nodes import ClusterNode
from tests.interop.clusters import Cluster, combined, run_cluster

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
