"""Apache Kafka and Ottla as nodes of one cluster: each joins the other's quorum and follows the other's leaders."""

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.interop.cluster_clients import (
    PATIENCE,
    GroupMember,
    ProduceLoad,
    TransactionLoad,
    create_on,
    create_topic,
    end_offset,
)
from tests.interop.cluster_nodes import BROKER, CONTROLLER, KAFKA, OTTLA
from tests.interop.clusters import FIND_COORDINATOR, Cluster, NodeSpec, ask, run_cluster
from tests.interop.kafka_tools import Tools
from tests.interop.librdkafka import Deliveries, flush, produce_values, read_records

pytestmark = [pytest.mark.java, pytest.mark.slow]

Record = Callable[[str, object], None]
KAFKA_ID, OTTLA_ID = 1, 2
FEATURES = "org.apache.kafka.tools.FeatureCommand"
NOT_IN_OTTLA = ("share.version", "streams.version")
OFFSET_COMMIT, OFFSET_FETCH, ALTER_REASSIGNMENTS = 8, 9, 45
OF_GROUPS, OF_TRANSACTIONS = 0, 1
BOTH_WAYS = pytest.mark.parametrize(
    ("leader", "follower"), [(KAFKA_ID, OTTLA_ID), (OTTLA_ID, KAFKA_ID)], ids=["kafka leads", "ottla leads"]
)
# Internal topics have so many partitions that a wrong partition of a key is unlikely to have the right leader.
SETTINGS = {
    "offsets.topic.num.partitions": "11",
    "transaction.state.log.num.partitions": "11",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module", params=[OTTLA, KAFKA], ids=["ottla controller", "kafka controller"])
def two_brokers(
    request: pytest.FixtureRequest, kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    specs = [
        NodeSpec(KAFKA_ID, BROKER, KAFKA),
        NodeSpec(OTTLA_ID, BROKER, OTTLA),
        NodeSpec(101, CONTROLLER, request.param),
    ]
    folder = tmp_path_factory.mktemp("m")
    if request.param == OTTLA:
        running = run_cluster(folder, specs, SETTINGS)
    else:
        running = run_kafka_and_join_it(folder, specs, kafka_libs)
    with running as cluster:
        yield cluster


@contextlib.contextmanager
def run_kafka_and_join_it(folder: Path, specs: list[NodeSpec], kafka_libs: Path) -> Iterator[Cluster]:
    """As docs/moving-from-kafka.md says: Kafka has its default features, and lowers two of them while it runs."""
    cluster = Cluster(folder, specs, SETTINGS)
    kafka = [node for node in cluster.nodes.values() if node.kind == KAFKA]
    try:
        for node in kafka:
            node.features = ()
        cluster.format()
        for node in kafka:
            node.start()
        cluster.wait_until_ready()
        tools = Tools(kafka_libs, cluster.nodes[KAFKA_ID].bootstrap)
        assert [finalized_level(tools, name) for name in NOT_IN_OTTLA] == [1, 1]
        tools(FEATURES, "downgrade", *(part for name in NOT_IN_OTTLA for part in ("--feature", f"{name}=0")))
        cluster.wait_until(
            lambda: [finalized_level(tools, name) for name in NOT_IN_OTTLA] == [0, 0], "both are lowered"
        )
        cluster.restart(OTTLA_ID)
        yield cluster
    finally:
        cluster.kill()


def finalized_level(tools: Tools, feature: str) -> int:
    said = tools(FEATURES, "describe")
    found = re.search(rf"{re.escape(feature)}\s.*FinalizedVersionLevel: (\d+)", said)
    assert found, said
    return int(found[1])


@pytest.fixture
def cluster(two_brokers: Cluster) -> Cluster:
    two_brokers.restore()
    return two_brokers


@BOTH_WAYS
def test_a_follower_copies_the_leader_byte_for_byte(
    cluster: Cluster, topic_name: str, leader: int, follower: int
) -> None:
    create_on(cluster, topic_name, [[leader, follower]] * 3, min_insync_replicas=2, segment_bytes=1_048_576)
    with ProduceLoad(cluster, topic_name, compression_type="lz4") as load:
        load.wait_for_more(2_000)
        load.finish()
    load.check()
    for codec in ("gzip", "snappy", "zstd", "none"):
        produce_values(cluster.bootstrap, topic_name, [b"x" * 900] * 500, acks="all", compression_type=codec)
    for partition in range(3):
        assert cluster.wait_until_copied(topic_name, partition)


@BOTH_WAYS
def test_a_restarted_leader_truncates_what_its_follower_never_had(
    cluster: Cluster, topic_name: str, leader: int, follower: int
) -> None:
    """KIP-101, KIP-279: records that only the dead leader had go, and the logs are equal again."""
    create_on(cluster, topic_name, [[leader, follower]], min_insync_replicas=1)
    produce_values(cluster.bootstrap, topic_name, [b"kept"] * 50, acks="all")
    cluster.nodes[follower].pause()
    produce_one_by_one(cluster, topic_name, [b"lost %d" % number for number in range(30)])
    before = cluster.nodes[leader].log_files(topic_name, 0)
    cluster.nodes[leader].kill()
    cluster.nodes[follower].resume()
    assert cluster.leader_of(topic_name, other_than=leader) == follower
    produce_values(cluster.bootstrap, topic_name, [b"new"] * 20, acks="all")
    cluster.restart(leader)
    cluster.wait_until_in_sync(topic_name)
    records = cluster.wait_until_copied(topic_name)
    assert b"lost 29" in b"".join(before.values())
    assert b"lost 29" not in records
    # A response with the first of them may have been on its way when the follower was paused.
    end = end_offset(cluster, topic_name, 0)
    assert 70 <= end < 100
    values = [record.value() for record in read_records(cluster.bootstrap, topic_name, end)]
    assert values[:50] == [b"kept"] * 50
    assert values[-20:] == [b"new"] * 20
    with ProduceLoad(cluster, topic_name, 1) as load:
        load.wait_for_more()
        load.finish()
    cluster.wait_until_copied(topic_name)


def produce_one_by_one(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """With acks=1, a batch each: at most the first fits into a fetch that the paused follower has sent already."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **PATIENCE, "acks": 1})
    deliveries = Deliveries()
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=deliveries)
        flush(producer)
    assert not deliveries.errors
    assert len(deliveries.delivered) == len(values)


@pytest.mark.parametrize("coordinator", [KAFKA_ID, OTTLA_ID], ids=["kafka coordinates", "ottla coordinates"])
def test_transactions_span_both_kinds_of_brokers(cluster: Cluster, topic_name: str, coordinator: int) -> None:
    cluster.elect_preferred_leaders()
    create_on(cluster, topic_name, [[KAFKA_ID, OTTLA_ID], [OTTLA_ID, KAFKA_ID]])
    names = (f"{topic_name}-{number}" for number in range(100))
    transactional_id = next(
        name for name in names if cluster.coordinator_id(name, of_transactions=True) == coordinator
    )
    with TransactionLoad(cluster, topic_name, transactional_id, 2) as load:
        load.wait_for_more(30)
        load.finish()
    assert load.aborted
    load.check()
    cluster.wait_until_copied(topic_name, 0)
    cluster.wait_until_copied(topic_name, 1)


@pytest.mark.parametrize("coordinator", [KAFKA_ID, OTTLA_ID], ids=["kafka coordinates", "ottla coordinates"])
def test_a_transactional_id_moves_to_the_other_kind_of_broker(
    cluster: Cluster, topic_name: str, coordinator: int
) -> None:
    """The other broker reads the transactions from the records of the first, and ends one that may be open."""
    cluster.elect_preferred_leaders()
    create_on(cluster, topic_name, [[KAFKA_ID, OTTLA_ID], [OTTLA_ID, KAFKA_ID]])
    names = (f"{topic_name}-{number}" for number in range(100))
    transactional_id = next(
        name for name in names if cluster.coordinator_id(name, of_transactions=True) == coordinator
    )
    other = OTTLA_ID if coordinator == KAFKA_ID else KAFKA_ID
    with TransactionLoad(cluster, topic_name, transactional_id, 2) as load:
        load.wait_for_more()
        cluster.wait_until_in_sync("__transaction_state", topic_name)
        assert cluster.nodes[coordinator].stop() in (0, 143)
        assert cluster.coordinator_id(transactional_id, of_transactions=True) == other
        load.wait_for_more()
        cluster.restart(coordinator)
        load.wait_for_more()
        load.finish()
    load.check()


def test_reassignments_move_a_partition_both_ways_under_load(cluster: Cluster, topic_name: str) -> None:
    """As docs/moving-from-kafka.md moves a cluster: each broker copies from the other, and the old replica goes."""
    create_on(cluster, topic_name, [[KAFKA_ID]])
    transactions = create_on(cluster, f"{topic_name}-txn", [[KAFKA_ID]])
    with (
        ProduceLoad(cluster, topic_name, 1) as load,
        TransactionLoad(cluster, transactions, topic_name, 1) as txn,
    ):
        for replicas in ([OTTLA_ID], [KAFKA_ID], [OTTLA_ID, KAFKA_ID], [KAFKA_ID, OTTLA_ID]):
            load.wait_for_more()
            txn.wait_for_more(5)
            for topic in (topic_name, transactions):
                move(cluster, topic, replicas)
        load.wait_for_more()
        txn.wait_for_more(5)
        load.finish()
        txn.finish()
    load.check()
    txn.check()
    for topic in (topic_name, transactions):
        cluster.wait_until_copied(topic)


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Moves partition 0 there, and waits until the reassignment is complete."""
    partition = {"partition_index": 0, "replicas": tuple(replicas)}
    topics: Any = ({"name": topic, "partitions": (partition,)},)
    answer = ask(cluster.nodes[OTTLA_ID].bootstrap, ALTER_REASSIGNMENTS, 0, timeout=10_000, topics=topics)
    assert answer.error_code == 0, answer
    assert answer.responses[0].partitions[0].error_code == 0, answer
    cluster.wait_until(
        lambda: cluster.partition(topic).replicas == tuple(replicas), f"{topic} is on {replicas}"
    )
    cluster.wait_until_in_sync(topic)


@pytest.mark.parametrize("kind", [OF_GROUPS, OF_TRANSACTIONS], ids=["groups", "transactions"])
def test_both_kinds_of_brokers_name_the_same_coordinators(cluster: Cluster, kind: int) -> None:
    """Else each would keep its own state of a group, or let a producer in that the other has fenced."""
    keys = tuple(uuid.uuid4().hex for _ in range(50))
    cluster.coordinator_id(keys[0], of_transactions=kind == OF_TRANSACTIONS)
    cluster.elect_preferred_leaders()

    def coordinators_by(node_id: int) -> dict[str, int]:
        bootstrap = cluster.nodes[node_id].bootstrap
        answer = ask(bootstrap, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=keys)
        return {str(found.key): int(found.node_id) for found in answer.coordinators}

    cluster.wait_until(lambda: set(coordinators_by(KAFKA_ID).values()) == {KAFKA_ID, OTTLA_ID}, "both lead")
    cluster.wait_until(lambda: coordinators_by(KAFKA_ID) == coordinators_by(OTTLA_ID), "both say the same")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("coordinator", [KAFKA_ID, OTTLA_ID], ids=["kafka coordinates", "ottla coordinates"])
def test_a_group_moves_to_the_other_kind_of_broker(
    cluster: Cluster, topic_name: str, coordinator: int, protocol: str
) -> None:
    """The other broker reads the group from the records of the first, and goes on. No committed offset is lost."""
    cluster.elect_preferred_leaders()
    create_on(cluster, topic_name, [[KAFKA_ID, OTTLA_ID], [OTTLA_ID, KAFKA_ID]])
    names = (f"{topic_name}-{number}" for number in range(100))
    group_id = next(name for name in names if cluster.coordinator_id(name) == coordinator)
    other = OTTLA_ID if coordinator == KAFKA_ID else KAFKA_ID
    committed = commit_for_groups(cluster, topic_name, coordinator)
    with (
        ProduceLoad(cluster, topic_name, 2) as load,
        GroupMember(cluster, group_id, topic_name, group_protocol=protocol) as member,
    ):
        member.wait_for_more()
        cluster.wait_until_in_sync("__consumer_offsets")
        assert cluster.nodes[coordinator].stop() in (0, 143)
        cluster.wait_until(lambda: cluster.coordinator_id(group_id) == other, "the group has moved")
        load.wait_for_more()
        load.finish()
        cluster.wait_until(
            lambda: all(set(load.acknowledged[p]) <= set(member.read[p]) for p in range(2)), "all are read"
        )
    load.check()
    cluster.wait_until(
        lambda: (
            {group: committed_offset(cluster, topic_name, group, other) for group in committed} == committed
        ),
        "the other broker knows all committed offsets",
    )


def commit_for_groups(cluster: Cluster, topic: str, coordinator: int) -> dict[str, int]:
    """Commits an offset for some groups without members that `coordinator` serves. Returns the offset of each."""
    names = (uuid.uuid4().hex for _ in range(200))
    groups = [name for name in names if cluster.coordinator_id(name) == coordinator][:20]
    for number, group in enumerate(groups):
        cluster.wait_until(
            lambda n=number, g=group: commit_offset(cluster, topic, g, n, coordinator) == 0,  # type: ignore[misc]
            f"an offset of {group} is committed",
        )
    return {group: number for number, group in enumerate(groups)}


def commit_offset(cluster: Cluster, topic: str, group: str, offset: int, node_id: int) -> int:
    """Returns the error code."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    answer = ask(
        cluster.nodes[node_id].bootstrap,
        OFFSET_COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=({"name": topic, "partitions": (partition,)},),
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed_offset(cluster: Cluster, topic: str, group: str, node_id: int) -> int | None:
    """As this broker says; None if it does not coordinate the group yet."""
    groups: Any = ({"group_id": group, "topics": ({"name": topic, "partition_indexes": (0,)},)},)
    answer = ask(cluster.nodes[node_id].bootstrap, OFFSET_FETCH, 8, groups=groups, require_stable=False)
    (found,) = answer.groups
    return int(found.topics[0].partitions[0].committed_offset) if found.error_code == 0 else None


@pytest.mark.parametrize("kafka_voters", [1, 2])
def test_a_quorum_of_both_kinds_elects_commits_and_survives_its_leader(
    kafka_libs: object, tmp_path_factory: pytest.TempPathFactory, kafka_voters: int, record_property: Record
) -> None:
    kinds = [KAFKA] * kafka_voters + [OTTLA] * (3 - kafka_voters)
    specs = [
        NodeSpec(1, BROKER, OTTLA),
        *(NodeSpec(101 + number, CONTROLLER, kind) for number, kind in enumerate(kinds)),
    ]
    with run_cluster(tmp_path_factory.mktemp("q"), specs, SETTINGS) as cluster:
        leaders = []
        for number in range(4):
            leader = cluster.controller_id()
            began = time.monotonic()
            cluster.nodes[leader].kill()
            cluster.controller_id(other_than=leader)
            create_topic(cluster, f"t{number}", 2, replicas=1)
            leaders.append((cluster.nodes[leader].kind, time.monotonic() - began))
            cluster.restart(leader)
            wait_until_voters_agree(cluster)
        took = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in leaders)
        record_property("latency", f"{kafka_voters} of 3 voters are Kafka: a topic after the kill of {took}")
        produce_values(cluster.bootstrap, "t3", [b"a"], acks="all")
        assert {"t0", "t1", "t2", "t3"} <= cluster.topics_of(1)
        logs = [node.log_files("__cluster_metadata", 0) for node in cluster.nodes.values()]
        first = [files[f"{0:020d}.log"] for files in logs]
        common = min(map(len, first))
        assert common > 1_000
        assert len({log[:common] for log in first}) == 1


def wait_until_voters_agree(cluster: Cluster) -> None:
    """Until every voter has the whole metadata log, so that any of them may lead."""

    def is_even() -> bool:
        quorum = cluster.quorum()
        return quorum is not None and all(
            voter.log_end_offset >= quorum.high_watermark for voter in quorum.current_voters
        )

    cluster.wait_until(is_even, "all voters have the whole log")
