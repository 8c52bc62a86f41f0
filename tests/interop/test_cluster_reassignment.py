"""Partitions move between brokers, by Kafka's own tool, under load: nothing is lost, and nothing stays behind."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.cluster_clients import ProduceLoad, TransactionLoad, create_on
from tests.interop.cluster_nodes import BROKER
from tests.interop.clusters import WAIT_TIMEOUT_S, Cluster, NodeSpec, ask, combined, run_cluster
from tests.interop.kafka_tools import Tools

pytestmark = [pytest.mark.java, pytest.mark.slow]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT = 3, 38, 39
NO_REASSIGNMENT_IN_PROGRESS = 85


@pytest.fixture(scope="module")
def four_brokers(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with run_cluster(tmp_path_factory.mktemp("r"), [*combined(3), NodeSpec(4, BROKER)]) as cluster:
        yield cluster


@pytest.fixture
def cluster(four_brokers: Cluster) -> Cluster:
    four_brokers.restore()
    return four_brokers


@pytest.fixture
def tools(kafka_libs: Path, cluster: Cluster) -> Tools:
    return Tools(kafka_libs, cluster.bootstrap)


def plan(folder: Path, topic: str, *replicas: list[int]) -> str:
    """Writes Kafka's JSON plan and returns its path."""
    path = folder / "plan.json"
    partitions = [
        {"topic": topic, "partition": index, "replicas": each, "log_dirs": ["any"] * len(each)}
        for index, each in enumerate(replicas)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def alter(
    cluster: Cluster,
    topic: str,
    replicas: list[int] | None,
    partition: int = 0,
    version: int = 1,
    **more: bool,
) -> int:
    """Asks a broker that is not the active controller, and returns the error code of the partition."""
    active = cluster.controller_id()
    broker = next(node for node in cluster.running_brokers if node.node_id != active)
    wanted = {"partition_index": partition, "replicas": None if replicas is None else tuple(replicas)}
    topics = ({"name": topic, "partitions": (wanted,)},)
    answer = ask(broker.bootstrap, ALTER_REASSIGNMENTS, version, timeout=10_000, topics=topics, **more)
    assert answer.error_code == 0, answer
    return int(answer.responses[0].partitions[0].error_code)


def ongoing(cluster: Cluster) -> dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]]:
    """(topic, partition): the replicas that are added, and those that are removed."""
    answer = ask(cluster.running_brokers[0].bootstrap, LIST_REASSIGNMENTS, 0, timeout=10_000, topics=None)
    return {
        (str(topic.name), int(partition.partition_index)): (
            tuple(map(int, partition.adding_replicas)),
            tuple(map(int, partition.removing_replicas)),
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def wait_until_moved(cluster: Cluster, topic: str, *replicas: list[int]) -> None:
    def is_moved() -> bool:
        found = cluster.partitions(topic)
        return all(found[index].replicas == tuple(each) for index, each in enumerate(replicas))

    cluster.wait_until(is_moved, f"the partitions of {topic} are on {replicas}")
    cluster.wait_until_in_sync(topic)


def folders(cluster: Cluster, topic: str) -> dict[int, list[str]]:
    """Without those that are renamed and will be deleted a minute later."""
    return {
        node.node_id: sorted(path.name for path in node.data_dir.glob(f"{topic}-?"))
        for node in cluster.brokers
    }


def test_partitions_move_to_other_brokers_under_load(
    cluster: Cluster, tools: Tools, topic_name: str, tmp_path: Path
) -> None:
    create_on(cluster, topic_name, [[1, 2, 3], [2, 3, 1]], min_insync_replicas=2)
    targets = ([4, 3, 2], [4, 1, 2])
    path = plan(tmp_path, topic_name, *targets)
    with ProduceLoad(cluster, topic_name, 2) as load:
        load.wait_for_more()
        said = tools(REASSIGN, "--reassignment-json-file", path, "--execute")
        assert "Successfully started partition reassignments" in said
        wait_until_moved(cluster, topic_name, *targets)
        load.wait_for_more()
        cluster.elect_preferred_leaders()
        cluster.wait_until(lambda: cluster.leader_of(topic_name) == 4, "the new preferred replica leads")
        load.wait_for_more()
        load.finish()
    load.check()
    said = tools(REASSIGN, "--reassignment-json-file", path, "--verify")
    assert said.count("is completed") == 2, said
    for partition in range(2):
        cluster.wait_until_copied(topic_name, partition)
    expected = {1: [1], 2: [0, 1], 3: [0], 4: [0, 1]}
    cluster.wait_until(
        lambda: (
            folders(cluster, topic_name)
            == {node: [f"{topic_name}-{index}" for index in indexes] for node, indexes in expected.items()}
        ),
        "the removed replicas are deleted",
    )
    assert "No partition reassignments found" in tools(REASSIGN, "--list")


def move_by_tool(cluster: Cluster, tools: Tools, path: str, topic: str, target: int, *options: str) -> float:
    """Returns the seconds from the start of the tool until the move is complete."""
    began = time.monotonic()
    tools(REASSIGN, "--reassignment-json-file", path, "--execute", *options)
    if options:
        assert ongoing(cluster), "a throttled move takes longer than the tool"
    wait_until_moved(cluster, topic, [target])
    return time.monotonic() - began


def test_a_throttle_of_kafkas_tool_slows_a_move_down_and_is_removed_by_it(
    cluster: Cluster, tools: Tools, topic_name: str, tmp_path: Path
) -> None:
    create_on(cluster, topic_name, [[1]])
    fill(cluster, topic_name, megabytes=8)
    free_s = move_by_tool(cluster, tools, plan(tmp_path, topic_name, [2]), topic_name, 2)
    path = plan(tmp_path, topic_name, [4])
    throttled_s = move_by_tool(cluster, tools, path, topic_name, 4, "--throttle", "1000000")
    # One response of at most a megabyte is sent before the quota counts it.
    assert throttled_s >= 6
    assert throttled_s > free_s
    said = tools(REASSIGN, "--reassignment-json-file", path, "--verify")
    assert "Clearing broker-level throttles" in said
    assert f"Clearing topic-level throttles on topic {topic_name}" in said


def fill(cluster: Cluster, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 1_000_000})
    for _ in range(megabytes * 10):
        producer.produce(topic, bytes(100_000))
        producer.poll(0)
    assert producer.flush(WAIT_TIMEOUT_S) == 0


def test_the_leader_and_its_transactions_move(
    cluster: Cluster, tools: Tools, topic_name: str, tmp_path: Path
) -> None:
    create_on(cluster, topic_name, [[1]])
    with TransactionLoad(cluster, topic_name, topic_name, 1) as load:
        load.wait_for_more()
        for replicas in ([2, 4], [4], [1, 2, 3], [3]):
            tools(REASSIGN, "--reassignment-json-file", plan(tmp_path, topic_name, replicas), "--execute")
            wait_until_moved(cluster, topic_name, replicas)
            load.wait_for_more()
        load.finish()
    load.check()


def test_a_reassignment_whose_target_is_down_can_be_cancelled(
    cluster: Cluster, tools: Tools, topic_name: str
) -> None:
    create_on(cluster, topic_name, [[1, 2]])
    cluster.nodes[4].stop()
    with ProduceLoad(cluster, topic_name, 1) as load:
        assert alter(cluster, topic_name, [4, 2]) == 0
        cluster.wait_until(lambda: ongoing(cluster) == {(topic_name, 0): ((4,), (1,))}, "it is listed")
        said = tools(REASSIGN, "--list")
        assert f"{topic_name}-0" in said
        assert "adding: 4" in said
        load.wait_for_more()
        # Kafka's tool cancels it too, but then waits for broker 4, to remove throttles from it.
        assert alter(cluster, topic_name, None) == 0
        cluster.wait_until(lambda: not ongoing(cluster), "it is cancelled")
        cluster.wait_until(
            lambda: set(cluster.partition(topic_name).replicas) == {1, 2}, "it has its replicas again"
        )
        load.wait_for_more()
        load.finish()
    load.check()
    cluster.nodes[4].start()
    cluster.wait_until_ready()
    assert folders(cluster, topic_name)[4] == []


def test_wrong_reassignments_are_refused_and_change_nothing(cluster: Cluster, topic_name: str) -> None:
    create_on(cluster, topic_name, [[1, 2]])
    before = cluster.partitions(topic_name)
    for replicas in ([1, 77], [1, 1], []):
        assert alter(cluster, topic_name, replicas) == INVALID_REPLICA_ASSIGNMENT
    assert alter(cluster, topic_name, [1], partition=5) == UNKNOWN_TOPIC_OR_PARTITION
    assert alter(cluster, "nobody", [1]) == UNKNOWN_TOPIC_OR_PARTITION
    assert alter(cluster, topic_name, None) == NO_REASSIGNMENT_IN_PROGRESS
    refused = alter(cluster, topic_name, [1], allow_replication_factor_change=False)
    assert refused == INVALID_REPLICATION_FACTOR
    assert cluster.partitions(topic_name) == before
    assert alter(cluster, topic_name, [1], version=0) == 0
    wait_until_moved(cluster, topic_name, [1])
