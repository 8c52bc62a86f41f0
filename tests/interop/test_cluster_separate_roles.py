"""Brokers and controllers as separate processes: the majority of the controllers is lost, wrong nodes want to join."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.cluster_clients import ProduceLoad, create_topic
from tests.interop.cluster_nodes import BROKER, OTTLA, ClusterNode
from tests.interop.clusters import Cluster, NodeSpec, combined, run_cluster, separate
from tests.interop.librdkafka import produce_values, read_records

pytestmark = pytest.mark.slow

Record = Callable[[str, object], None]
REFUSED_TIMEOUT_S = 30.0
# A broker gives up after a minute by default: its controllers may come later.
QUICKLY = {"initial.broker.registration.timeout.ms": "4000"}
SEPARATE = separate(2, 3, broker_kind=OTTLA, controller_kind=OTTLA)


@pytest.fixture(scope="module")
def five_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A broker waits for this long for a controller, before it gives up a request.
    settings = {"offsets.topic.replication.factor": "2", "controller.socket.timeout.ms": "5000"}
    with run_cluster(tmp_path_factory.mktemp("c"), SEPARATE, settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(five_nodes: Cluster) -> Cluster:
    five_nodes.restore()
    return five_nodes


def test_without_a_majority_of_controllers_metadata_cannot_change_but_records_flow(
    cluster: Cluster, topic_name: str, record_property: Record
) -> None:
    create_topic(cluster, topic_name, 2, replicas=2, min_insync_replicas=2)
    active = cluster.controller_id()
    other = next(n.node_id for n in cluster.nodes.values() if n.is_controller and n.node_id != active)
    with ProduceLoad(cluster, topic_name, 2) as load:
        load.wait_for_more()
        cluster.nodes[active].kill()
        cluster.nodes[other].kill()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        began = time.monotonic()
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic("never", 1, 1)], request_timeout=20)["never"].result(30)
        assert time.monotonic() - began < 15
        record_property("latency", f"no majority: {refused.value} after {time.monotonic() - began:.1f} s")
        load.wait_for_more()
        load.finish()
        load.check()
        cluster.nodes[other].start()
        cluster.controller_id()
        create_topic(cluster, f"{topic_name}-after", 1, replicas=2)
    assert "never" not in cluster.topics_of(1)


def test_a_broker_that_was_stopped_without_a_controller_serves_its_records_again(
    cluster: Cluster, topic_name: str
) -> None:
    create_topic(cluster, topic_name, 1, replicas=2)
    produce_values(cluster.bootstrap, topic_name, [b"a", b"b"], acks="all")
    cluster.kill()
    cluster.restore()
    cluster.wait_until_in_sync(topic_name)
    assert [r.value() for r in read_records(cluster.bootstrap, topic_name, 2)] == [b"a", b"b"]


@pytest.mark.parametrize("specs", [combined(3), SEPARATE], ids=["combined", "separate"])
def test_a_node_that_waits_for_the_other_controllers_stops_on_sigterm(
    tmp_path: Path, specs: list[NodeSpec]
) -> None:
    cluster = Cluster(tmp_path, specs)
    cluster.format()
    node = cluster.nodes[1]
    try:
        node.start()
        cluster.wait_until(
            lambda: "is not available" in node.log_text(), "node 1 does not look for the others"
        )
        assert node.stop() == 0
    finally:
        cluster.kill()
    assert "node 1 was stopped before it served" in node.log_text()
    assert "Traceback" not in node.log_text()


def wait_until_refused(cluster: Cluster, node: ClusterNode) -> str:
    """Starts the node, which must end by itself, and returns its output."""
    node.start()
    assert node.process is not None
    try:
        code = node.process.wait(REFUSED_TIMEOUT_S)
    finally:
        node.kill()
    assert code not in (0, None)
    assert "Traceback" not in node.log_text()
    cluster.wait_until_ready()
    return node.log_text()


def test_a_second_broker_with_the_same_node_id_is_refused(cluster: Cluster) -> None:
    said = wait_until_refused(cluster, cluster.add(NodeSpec(1, BROKER), "twin", set=QUICKLY))
    assert "node.id=1 belongs to another broker that is running" in said


def test_a_node_of_another_cluster_is_refused(cluster: Cluster) -> None:
    other = "4L6g3nShT-eMCtK--X86sw"
    node = cluster.add(NodeSpec(7, BROKER), "stranger", cluster_id=other, set=QUICKLY)
    said = wait_until_refused(cluster, node)
    assert f"belongs to another cluster: this one is {other}. Check controller.quorum.voters" in said


def test_an_unformatted_directory_is_refused(cluster: Cluster) -> None:
    node = cluster.add(NodeSpec(8, BROKER), "empty")
    shutil.rmtree(node.data_dir)
    said = wait_until_refused(cluster, node)
    assert "ottla format" in said
    assert str(node.data_dir) in said


def test_a_directory_of_another_node_is_refused(cluster: Cluster) -> None:
    node = cluster.add(NodeSpec(9, BROKER), "moved")
    node.write_config(cluster.properties_of(node) | {"node.id": "10"})
    said = wait_until_refused(cluster, node)
    assert "node.id" in said
    assert "9" in said
    assert "10" in said
