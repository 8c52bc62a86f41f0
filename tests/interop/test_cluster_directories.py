"""Nodes with two data directories: replicas move between them under load (KIP-113), and cordoned ones get no new
replicas (KIP-1066). Each half of the protocol is tried against Apache Kafka's other half.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.interop.cluster_clients import ProduceLoad, admin_of, create_on, create_topic
from tests.interop.cluster_nodes import KAFKA, OTTLA, ClusterNode
from tests.interop.clusters import Cluster, NodeSpec, combined, run_cluster, separate
from tests.interop.kafka_tools import Tools
from tests.interop.kio_client import KioClient
from tests.interop.librdkafka import TIMEOUT_S

pytestmark = pytest.mark.slow
ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35
INVALID_REPLICA_ASSIGNMENT = 39
PARTITIONS = 4
MANY = 20  # a broker creates so many in steps
CORDONED = "cordoned.log.dirs"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
KINDS = [
    pytest.param(OTTLA, OTTLA, id="ottla"),
    pytest.param(OTTLA, KAFKA, id="ottla broker, kafka controller", marks=pytest.mark.java),
    pytest.param(KAFKA, OTTLA, id="kafka broker, ottla controller", marks=pytest.mark.java),
]


@contextlib.contextmanager
def cluster_of_disks(folder: Path, specs: list[NodeSpec]) -> Iterator[Cluster]:
    """Every broker has two directories, `one` and `two`."""
    own = {
        spec.node_id: {
            "log.dirs": f"{folder}/n{spec.node_id},{folder}/n{spec.node_id}-two",
            "metadata.log.dir": f"{folder}/n{spec.node_id}",
        }
        for spec in specs
        if "broker" in spec.roles
    }
    with run_cluster(folder, specs, own=own) as cluster:
        yield cluster


def directories(node: ClusterNode) -> tuple[str, str]:
    return str(node.data_dir), f"{node.data_dir}-two"


def ask(node: ClusterNode, key: int, version: int, **values: Any) -> Any:
    with contextlib.closing(KioClient(node.bootstrap, TIMEOUT_S)) as client:
        return client.ask(key, version, **values)


def describe(node: ClusterNode) -> dict[str, Any]:
    return {result.log_dir: result for result in ask(node, DESCRIBE_LOG_DIRS, 5, topics=None).results}


def directory_of(node: ClusterNode, topic: str, partition: int) -> str | None:
    """Where the replica is, if it is in one directory and not on the way to another."""
    found = [
        (path, p.is_future_key)
        for path, result in describe(node).items()
        for t in result.topics
        for p in t.partitions
        if (t.name, p.partition_index) == (topic, partition)
    ]
    return found[0][0] if len(found) == 1 and not found[0][1] else None


def move(node: ClusterNode, topic: str, partition: int, path: str) -> int:
    topics = ({"name": topic, "partitions": (partition,)},)
    answer = ask(node, ALTER_REPLICA_LOG_DIRS, 2, dirs=({"path": path, "topics": topics},))
    return int(answer.results[0].partitions[0].error_code)


def other(node: ClusterNode, path: str | None) -> str:
    one, two = directories(node)
    return two if path == one else one


def test_replicas_move_between_directories_under_load_and_nothing_is_lost(
    tmp_path: Path, topic_name: str
) -> None:
    """All replicas of all partitions, leaders and followers, there and back."""
    with cluster_of_disks(tmp_path, combined(3)) as cluster:
        create_topic(cluster, topic_name, PARTITIONS, segment_bytes=1 << 20)
        with ProduceLoad(cluster, topic_name, PARTITIONS) as load:
            load.wait_for_more(1_000)
            for _ in range(2):
                targets = {
                    (node.node_id, index): other(node, directory_of(node, topic_name, index))
                    for node in cluster.brokers
                    for index in range(PARTITIONS)
                }
                for (node_id, index), path in targets.items():
                    assert move(cluster.nodes[node_id], topic_name, index, path) == 0
                for (node_id, index), path in targets.items():
                    node = cluster.nodes[node_id]
                    cluster.wait_until(
                        lambda node=node, index=index, path=path: (  # type: ignore[misc]
                            directory_of(node, topic_name, index) == path
                        ),
                        f"{topic_name}-{index} of {node} is in {path}",
                    )
                load.wait_for_more()
                cluster.wait_until_in_sync(topic_name)
            # The moved replicas are where a restart looks for them.
            cluster.nodes[1].kill()
            cluster.restart(1)
            cluster.wait_until_in_sync(topic_name)
            load.finish()
        load.check()


@pytest.mark.java
def test_kafkas_tools_move_replicas_to_directories_and_show_them(
    tmp_path: Path, topic_name: str, kafka_libs: Path
) -> None:
    """A plan with `log_dirs` moves a replica within its broker, and names the directory of a new one."""
    with cluster_of_disks(tmp_path, combined(2)) as cluster:
        first, second = cluster.brokers
        tools = Tools(kafka_libs, cluster.bootstrap)
        create_on(cluster, topic_name, [[1]])
        cluster.wait_until(lambda: directory_of(first, topic_name, 0) is not None, "the replica is created")
        wanted = other(first, directory_of(first, topic_name, 0)), directories(second)[1]
        move = {"topic": topic_name, "partition": 0, "replicas": [1, 2], "log_dirs": wanted}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        with ProduceLoad(cluster, topic_name, 1) as load:
            load.wait_for_more()
            said = tools(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
            for broker, path in zip((1, 2), wanted, strict=True):
                replica = f"replica {topic_name}-0 with broker {broker}"
                assert f"Successfully started moving log directory to {path} for {replica}" in said
            cluster.wait_until(
                lambda: (directory_of(first, topic_name, 0), directory_of(second, topic_name, 0)) == wanted,
                "both replicas are in their directories",
            )
            cluster.wait_until_in_sync(topic_name)
            load.wait_for_more()
            load.finish()
        load.check()
        said = tools(REASSIGN, "--reassignment-json-file", str(plan), "--verify")
        assert said.count("completed successfully") == 2, said
        shown = tools(LOG_DIRS, "--describe", "--topic-list", topic_name).splitlines()[-1]
        found = {
            (broker["broker"], directory["logDir"]): [
                (p["partition"], p["isFuture"]) for p in directory["partitions"]
            ]
            for broker in json.loads(shown)["brokers"]
            for directory in broker["logDirs"]
        }
        expected: dict[Any, Any] = {
            (node.node_id, path): [] for node in cluster.brokers for path in directories(node)
        }
        assert found == expected | {
            (node_id, path): [(f"{topic_name}-0", False)]
            for node_id, path in zip((1, 2), wanted, strict=True)
        }


def cordon(cluster: Cluster, broker_id: int, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(CORDONED, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
    admin = admin_of(cluster)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)


def cordoned(node: ClusterNode) -> set[str]:
    return {path for path, result in describe(node).items() if result.is_cordoned}


@pytest.mark.parametrize(("broker", "controller"), KINDS)
def test_cordoned_directories_get_no_new_replicas(
    tmp_path: Path, topic_name: str, broker: str, controller: str
) -> None:
    specs = separate(3, 1, broker_kind=OTTLA, controller_kind=controller)
    specs[0] = specs[0]._replace(kind=broker)
    with cluster_of_disks(tmp_path, specs) as cluster:
        node = cluster.nodes[1]
        one, two = directories(node)
        cordon(cluster, 1, two)
        cluster.wait_until(lambda: cordoned(node) == {two}, "node 1 has cordoned a directory")
        create_on(cluster, f"{topic_name}-one", [[1, 2, 3]] * MANY)
        placed_in = lambda: [directory_of(node, f"{topic_name}-one", index) for index in range(MANY)]  # noqa: E731
        cluster.wait_until(lambda: None not in placed_in(), "broker 1 has created its replicas")
        assert set(placed_in()) == {one}
        assert move(node, f"{topic_name}-one", 0, two) == INVALID_REPLICA_ASSIGNMENT
        with ProduceLoad(cluster, f"{topic_name}-one", PARTITIONS) as load:
            load.wait_for_more()
            refused = f"{topic_name}-refused"
            cordon(cluster, 1, "*")
            cluster.wait_until(
                lambda: is_refused(cluster, refused), "a topic cannot have a replica on broker 1"
            )
            create_topic(cluster, f"{topic_name}-others", 6, replicas=2)
            placed = cluster.partitions(f"{topic_name}-others")
            assert {replica for partition in placed.values() for replica in partition.replicas} == {2, 3}
            # Its replicas stay in sync and lead, also over a restart.
            load.wait_for_more()
            node.stop()
            cluster.restart(1)
            cluster.wait_until_in_sync(f"{topic_name}-one")
            load.wait_for_more()
            assert cordoned(node) == {one, two}
            assert is_refused(cluster, refused)
            cordon(cluster, 1, None)
            cluster.wait_until(
                lambda: not is_refused(cluster, refused), "a topic can have a replica on broker 1"
            )
            create_topic(cluster, f"{topic_name}-all", 6, replicas=3)
            load.finish()
        load.check()


def is_refused(cluster: Cluster, topic: str) -> bool:
    """Whether a topic cannot have three replicas."""
    admin, new = admin_of(cluster), NewTopic(topic, num_partitions=1, replication_factor=3)
    try:
        admin.create_topics([new], validate_only=True)[topic].result(TIMEOUT_S)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR)
    return False


def test_directories_that_the_broker_does_not_have_are_refused(tmp_path: Path) -> None:
    with cluster_of_disks(tmp_path, combined(3)) as cluster:
        for node in cluster.brokers:
            with pytest.raises(KafkaException, match=r"is not one of log\.dirs"):
                cordon(cluster, node.node_id, "/elsewhere")
            assert cordoned(node) == set()
