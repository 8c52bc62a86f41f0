"""Faults on the nodes of a cluster: its network, its disks, its time, its leaders, and single requests."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from tests.unit.testing.partition_states import (
    TIMEOUT_S,
    produce_at,
    wait_until_in_sync,
    wait_until_led,
)

from ottla.admin.cluster import ClusterError
from ottla.model.errors import ErrorCode
from ottla.testing import AsyncKafkaCluster, BrokerStoppedError, KafkaCluster
from ottla.testing.helpers import wait_until
from ottla.testing.leadership import GROUPS, coordinator_partition

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """The shared cluster, without the faults of other tests, and with all nodes in sync."""
    yield shared_cluster
    shared_cluster.heal()
    for node in shared_cluster.nodes:
        shared_cluster.node(node).clear_faults()
        shared_cluster.node(node).free_disk()
    shared_cluster.wait_until_active()


def new_topic(cluster: KafkaCluster, leader: int) -> str:
    topic = cluster.create_topic()
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    cluster.move_leader(topic, 0, leader)
    wait_until_led(cluster, topic, leader)
    return topic


def values(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """All values in the topic. A read that meets a change of leader is tried again."""
    found: list[bytes | None] | None = None

    def is_read() -> bool:
        nonlocal found
        with suppress(ClusterError):
            found = [record.value for record in cluster.records(topic)]
        return found is not None

    assert wait_until(is_read, TIMEOUT_S), f"topic {topic} cannot be read"
    assert found is not None
    return found


def test_a_fault_meets_requests_to_its_node_only(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=2)
    elsewhere = cluster.node(1).fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    fault = cluster.node(2).fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    cluster.produce(topic, "a")
    assert (fault.count, elsewhere.count) == (2, 0)
    assert values(cluster, topic) == [b"a"]


def test_a_function_in_the_process_of_the_test_controls_a_node(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=3)
    seen = []

    def control(request):
        seen.append((request.client_id, request.message.topic_data[0].partition_data[0].index))
        return request.error_response("NOT_LEADER_OR_FOLLOWER") if len(seen) == 1 else None

    fault = cluster.node(3).control("Produce", control)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "billing"})
    producer.produce(topic, "a")
    assert producer.flush(TIMEOUT_S) == 0
    assert seen == [("billing", 0)] * 2
    assert fault.count == 2


def test_a_function_that_raises_closes_the_connection(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=1)
    fault = cluster.node(1).control("Produce", lambda request: 1 / 0, times=1)
    cluster.produce(topic, "a")
    assert fault.count == 1
    assert values(cluster, topic) == [b"a"]
    assert "ZeroDivisionError" in cluster.log(1)


def test_a_fault_outlives_a_restart_of_its_node(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=2)
    fault = cluster.node(2).disconnect("Produce", times=2)
    cluster.restart(2)
    cluster.move_leader(topic, 0, 2)
    wait_until_led(cluster, topic, 2)
    cluster.produce(topic, "a")
    assert fault.count == 2
    assert values(cluster, topic) == [b"a"]


def test_an_isolated_leader_is_replaced_and_comes_back(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=3)
    cluster.produce(topic, "a")
    cluster.isolate(3)
    cluster.produce(topic, "b")
    wait_until_led(cluster, topic, 1, 2, nodes=(1, 2))
    wait_until_in_sync(cluster, topic, 1, 2)
    cluster.heal()
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    assert values(cluster, topic) == [b"a", b"b"]


def test_clients_may_still_reach_an_isolated_leader_that_can_acknowledge_nothing(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=3)
    cluster.isolate(3, clients=False)
    wait_until_led(cluster, topic, 1, 2, nodes=(1, 2))
    wait_until_led(cluster, topic, 3, nodes=(3,))  # it does not know better
    assert produce_at(cluster, 3, topic, b"lost", timeout_ms=1000) is ErrorCode.request_timed_out
    cluster.heal()
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    assert values(cluster, topic) == []


def test_a_node_with_a_full_disk_stops_and_serves_again_when_it_has_room(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=2)
    cluster.produce(topic, "a")
    cluster.node(2).fill_disk()
    cluster.produce(topic, "b")  # another node leads
    assert wait_until(lambda: cluster._nodes[2].exit_code is not None, TIMEOUT_S)
    assert "No space left on device" in cluster.log(2)
    with pytest.raises(BrokerStoppedError, match="node 2 does not run"):
        cluster.node(2).fail("Produce", "INVALID_RECORD")
    cluster.node(2).free_disk()
    cluster.restart(2)
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    assert values(cluster, topic) == [b"a", b"b"]


def next_record(consumer: Consumer) -> Message:
    """The client reports errors, such as those of a coordinator that is not there yet, and goes on."""
    found: Message | None = None

    def is_read() -> bool:
        nonlocal found
        found = consumer.poll(1)
        return found is not None and found.error() is None

    assert wait_until(is_read, TIMEOUT_S)
    assert found is not None
    return found


def is_committed(consumer: Consumer, record: Message) -> bool:
    """False if the coordinator was just moving."""
    with suppress(KafkaException):
        consumer.commit(message=record, asynchronous=False)
        return True
    return False


def test_the_coordinator_of_a_group_is_moved(cluster: KafkaCluster):
    topic = new_topic(cluster, leader=1)
    cluster.produce(topic, "a")
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        first = next_record(consumer)
        partition = coordinator_partition(cluster._cluster, "billing", GROUPS).partition
        for node in (1, 2):
            cluster.move_coordinator("billing", node)
            wait_until_led(cluster, GROUPS, node, partition=partition)
            assert wait_until(lambda: is_committed(consumer, first), TIMEOUT_S)
    finally:
        consumer.close()
    assert cluster.committed("billing") == {(topic, 0): 1}


def test_time_is_advanced_on_all_nodes():
    with KafkaCluster(3) as cluster:
        topic = cluster.create_topic(config={"retention.ms": 24 * 3600 * 1000})
        cluster.produce(topic, "a")
        cluster.advance(hours=23)
        assert values(cluster, topic) == [b"a"]
        cluster.move_leader(topic, 0, 1)
        cluster.pause(3)
        cluster.advance(hours=2)

        def is_empty() -> bool:
            # The sessions of nodes end too, so another node may lead now.
            with suppress(ClusterError):
                cluster.apply_retention(topic)
                return values(cluster, topic) == []
            return False

        assert wait_until(is_empty, TIMEOUT_S)
        cluster.resume(3)
        cluster.stop(2)
        cluster.restart(2)
        wait_until_in_sync(cluster, topic, 1, 2, 3)
        cluster.produce(topic, "b")
        assert wait_until(is_empty, TIMEOUT_S)  # for the nodes, the client's clock is a day late
        with pytest.raises(ValueError, match="expected a positive duration"):
            cluster.advance(hours=-1)


def test_a_topic_is_compacted_on_all_nodes(cluster: KafkaCluster):
    topic = cluster.create_topic(config={"cleanup.policy": "compact"})
    cluster.produce(topic, ("ada", "1"), ("ada", "2"))
    cluster.compact(topic)
    assert values(cluster, topic) == [b"2"]


async def use_async_cluster() -> list[bytes | None]:
    async with AsyncKafkaCluster(3) as kafka:
        topic = await kafka.create_topic()
        fault = await kafka.run(kafka.sync.node(2).fail, "Produce", "NOT_LEADER_OR_FOLLOWER")
        await kafka.move_leader(topic, 0, 2)
        await kafka.produce(topic, "a")
        assert await kafka.run(lambda: fault.count) == 1
        await kafka.isolate(2)
        await kafka.produce(topic, "b")
        await kafka.heal()
        return [record.value for record in await kafka.wait_for(topic, 2)]


def test_the_async_variant_of_a_cluster_serves():
    assert asyncio.run(use_async_cluster()) == [b"a", b"b"]
