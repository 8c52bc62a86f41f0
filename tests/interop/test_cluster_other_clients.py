"""Kafka's Java clients and kafka-python survive the loss of a leader and of a coordinator as librdkafka does."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.cluster_clients import create_topic, end_offset
from tests.interop.cluster_nodes import ClusterNode
from tests.interop.cluster_other_clients import OtherClients, Place, java_clients, kafka_python_clients
from tests.interop.clusters import Cluster, combined, run_cluster
from tests.interop.kafka_python_tools import PARTITIONS
from tests.interop.librdkafka import read_records

pytestmark = pytest.mark.slow

Fault = Callable[[ClusterNode], None]


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with run_cluster(tmp_path_factory.mktemp("o"), combined(3)) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    three_nodes.restore()
    return three_nodes


@pytest.fixture(params=["kafka-python", pytest.param("java", marks=pytest.mark.java)])
def clients(
    request: pytest.FixtureRequest, cluster: Cluster, topic_name: str, group_id: str, tmp_path: Path
) -> Iterator[OtherClients]:
    create_topic(cluster, topic_name, PARTITIONS, min_insync_replicas=2)
    if request.param == "java":
        libs = request.getfixturevalue("kafka_libs")
        started = java_clients(cluster, topic_name, group_id, tmp_path, libs)
    else:
        started = kafka_python_clients(cluster, topic_name, group_id, tmp_path)
    yield started
    cluster.restore()  # a client that waits for a dead node could not stop
    started.stop()


@pytest.mark.parametrize("fault", [ClusterNode.kill, ClusterNode.pause], ids=["kill -9", "SIGSTOP"])
def test_other_clients_survive_the_loss_of_a_leader_and_of_their_coordinator(
    cluster: Cluster, clients: OtherClients, topic_name: str, group_id: str, fault: Fault
) -> None:
    clients.wait_for_more(cluster)
    cluster.wait_until_in_sync("__consumer_offsets")
    for find in (lambda: cluster.leader_of(topic_name), lambda: cluster.coordinator_id(group_id)):
        fault(cluster.nodes[find()])
        clients.wait_for_more(cluster)
        cluster.restore()
        cluster.wait_until_in_sync(topic_name, "__consumer_offsets")
        clients.wait_for_more(cluster)
    clients.stop_producing()
    check(cluster, topic_name, clients)


def check(cluster: Cluster, topic: str, clients: OtherClients) -> None:
    """Every acknowledged record is at its offset, once, and nothing else is there. The group has read all of them."""
    assert not clients.failures, clients.failures[0]
    written: dict[int, Place] = {}
    for partition in range(PARTITIONS):
        end = end_offset(cluster, topic, partition)
        for record in read_records(cluster.bootstrap, topic, end, (partition,), check_crcs=True):
            number = int(record.value() or b"")
            assert number not in written, f"record {number} was written twice"
            written[number] = Place(partition, record.offset() or 0)
    assert written == clients.acknowledged
    cluster.wait_until(lambda: clients.read.keys() >= written.keys(), "the group has read everything")
    assert {number: {place} for number, place in written.items()} == clients.read
