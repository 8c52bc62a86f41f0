"""Clusters of processes for tests: nodes are stopped, killed, paused and started again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.testing.partition_states import wait_until_in_sync

from ottla.testing import BrokerStoppedError, KafkaCluster
from ottla.testing.cluster import _knows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(3) as cluster:
        yield cluster


def test_records_survive_nodes_that_are_killed_and_stopped(cluster: KafkaCluster):
    topic = cluster.create_topic()
    cluster.produce(topic, "a")
    cluster.kill(1)
    cluster.produce(topic, "b")
    with pytest.raises(BrokerStoppedError, match=r"node 1 does not run\. Start it with restart\(1\)"):
        cluster.stop(1)
    cluster.restart(1)
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    cluster.stop(2)
    cluster.produce(topic, "c")
    cluster.restart(2)
    cluster.restart(3)
    assert [record.value for record in cluster.wait_for(topic, 3)] == [b"a", b"b", b"c"]


def test_every_node_knows_a_topic_that_was_created(cluster: KafkaCluster):
    cluster.pause(3)
    try:
        cluster.create_topic()  # a paused node is not waited for
    finally:
        cluster.resume(3)
    for topic in [cluster.create_topic() for _ in range(5)]:
        for node in cluster.nodes:
            assert _knows(cluster.address(node), topic)
    assert not _knows(cluster.address(1), "no-such-topic")


def test_a_paused_node_leaves_the_in_sync_replicas_until_it_resumes(cluster: KafkaCluster):
    topic = cluster.create_topic()
    wait_until_in_sync(cluster, topic, 1, 2, 3)
    cluster.pause(3)
    cluster.produce(topic, "a")
    wait_until_in_sync(cluster, topic, 1, 2)
    cluster.resume(3)
    wait_until_in_sync(cluster, topic, 1, 2, 3)


def test_nothing_is_left_of_a_cluster():
    cluster = KafkaCluster(1)
    with pytest.raises(BrokerStoppedError, match="with KafkaCluster"):
        _ = cluster.bootstrap
    with cluster:
        folder = Path(cluster._layout[1].directory)
        pid = cluster._nodes[1].pid
        cluster.pause(1)
    assert not folder.parent.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_wrong_nodes_are_rejected(cluster: KafkaCluster):
    with pytest.raises(ValueError, match=r"there is no node 4\. The nodes: 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="a cluster of 0 nodes"):
        KafkaCluster(0)
