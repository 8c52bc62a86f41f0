"""Racks: consumers read from a replica in their own rack (KIP-392), and groups prefer partitions with a replica there
(KIP-881, KIP-848).
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.interop.cluster_clients import PASSING, PATIENCE, ProduceLoad, create_on
from tests.interop.clusters import Cluster, combined, run_cluster

pytestmark = pytest.mark.slow

RACKS = {1: "a", 2: "b", 3: "c"}
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = {node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()}
    with run_cluster(tmp_path_factory.mktemp("racks"), combined(3), SELECTOR, own=own) as running:
        yield running


@contextlib.contextmanager
def consumer_in(cluster: Cluster, rack: str, group: str, **config: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            **PATIENCE,
            **config,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_consumer_reads_from_the_follower_in_its_rack(cluster: Cluster, topic_name: str) -> None:
    """And from another replica when that one is gone."""
    create_on(cluster, topic_name, [[1, 2, 3]])
    read_from: list[int] = []
    values: list[bytes | None] = []

    def on_stats(text: str) -> None:
        topic = json.loads(text)["topics"].get(topic_name, {"partitions": {}})
        read_from.extend(found["broker"] for number, found in topic["partitions"].items() if number == "0")

    def reads_from(brokers: tuple[int, ...]) -> bool:
        for record in consumer.consume(500, 0.2):
            if (error := record.error()) is None:
                values.append(record.value())
            elif error.code() not in PASSING:
                raise KafkaException(error)
        return bool(read_from) and read_from[-1] in brokers

    with ProduceLoad(cluster, topic_name, 1) as load, contextlib.ExitStack() as stack:
        settings = {"statistics.interval.ms": 100, "stats_cb": on_stats}
        consumer = stack.enter_context(consumer_in(cluster, "c", topic_name, **settings))
        consumer.assign([TopicPartition(topic_name, 0, 0)])
        load.wait_for_more()
        cluster.wait_until(lambda: reads_from((3,)), "it reads from broker 3")
        cluster.nodes[3].stop()
        cluster.wait_until(lambda: reads_from((1, 2)), "it reads from another broker")
        load.wait_for_more()
        cluster.restart(3)
        load.finish()
        cluster.wait_until(
            lambda: reads_from((1, 2, 3)) and len(values) >= load.sent[0], "it has read everything"
        )
    assert [int((value or b"").split()[0]) for value in values] == list(range(load.sent[0]))
    load.check()


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"group.protocol": "consumer"}, id="assigned by the broker"),
        pytest.param({"partition.assignment.strategy": "range"}, id="assigned by a member"),
    ],
)
def test_a_group_assigns_partitions_to_members_in_the_rack_of_their_replica(
    cluster: Cluster, topic_name: str, group_id: str, config: dict[str, str]
) -> None:
    """A new topic, of which no member had partitions before: stickiness demands nothing."""
    first, second = f"{topic_name}-first", f"{topic_name}-second"
    create_on(cluster, first, [[1], [2], [3]])
    with contextlib.ExitStack() as stack:
        members = {
            rack: stack.enter_context(
                consumer_in(cluster, rack, group_id, **{"topic.metadata.refresh.interval.ms": 500, **config})
            )
            for rack in RACKS.values()
        }
        for member in members.values():
            member.subscribe([f"^{topic_name}-.*"])

        def assigned(topic: str) -> dict[str, set[int]]:
            for member in members.values():
                member.poll(0.05)
            return {
                rack: {p.partition for p in member.assignment() if p.topic == topic}
                for rack, member in members.items()
            }

        cluster.wait_until(
            lambda: all(len(found) == 1 for found in assigned(first).values()), "each member has a partition"
        )
        create_on(cluster, second, [[3], [1], [2], [2], [3], [1]])
        cluster.wait_until(
            lambda: assigned(second) == {"a": {1, 5}, "b": {2, 3}, "c": {0, 4}},
            "each member has the partitions of its rack",
        )
