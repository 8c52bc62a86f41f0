"""A node of three whose disk is full. If it was the only one, the node stops with the reason, the others go on, and it
comes back without loss. If it was one of two, the node goes on with the other, and the partitions of the full disk get
leaders elsewhere (KIP-858).
"""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.cluster_clients import PATIENCE, ProduceLoad, create_on
from tests.interop.cluster_nodes import KAFKA, OTTLA, ClusterNode
from tests.interop.clusters import Cluster, combined, run_cluster, separate
from tests.interop.librdkafka import flush

pytestmark = pytest.mark.slow

LEFT_BYTES = 64 << 10
CHUNK = bytes(64 << 10)
SMALL_VALUE = bytes(1 << 10)
STOP_TIMEOUT_S = 60.0


def fill_up(folder: Path) -> Path:
    """Fills the file system of `folder` almost up with a file, and returns the file. The node writes meanwhile, so the
    file system may be full before that.
    """
    path = folder / "ballast"
    with path.open("wb", buffering=0) as ballast:
        try:
            while free_bytes(folder) > LEFT_BYTES:
                ballast.write(CHUNK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return path


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def wait_until_stopped(node: ClusterNode) -> int:
    assert node.process is not None
    code = node.process.wait(STOP_TIMEOUT_S)
    node.process = None
    return code


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_node_with_a_full_disk_stops_and_comes_back_without_loss(
    small_disk: Callable[[str], Path], tmp_path: Path, topic_name: str, role: str
) -> None:
    disk = small_disk("n1")  # the data directory of node 1
    with run_cluster(tmp_path, combined(3)) as cluster:
        replicas = [1, 2, 3] if role == "leader" else [2, 3, 1]
        create_on(cluster, topic_name, [replicas], min_insync_replicas=2)
        with ProduceLoad(cluster, topic_name, 1) as load:
            load.wait_for_more()
            ballast = fill_up(disk)
            node = cluster.nodes[1]
            assert wait_until_stopped(node) == 1
            assert "No space left on device" in node.log_text()
            assert "every data directory is offline" in node.log_text()
            assert "Traceback" not in node.log_text()
            cluster.leader_of(topic_name, other_than=1)
            load.wait_for_more()
            ballast.unlink()
            cluster.restart(1)
            cluster.wait_until_in_sync(topic_name)
            load.wait_for_more()
            load.finish()
        load.check()
        cluster.wait_until_copied(topic_name)


PARTITIONS = 4
# Each half of the protocol is tried against Apache Kafka's other half.
KINDS = [
    pytest.param(OTTLA, OTTLA, id="ottla"),
    pytest.param(OTTLA, KAFKA, id="ottla broker, kafka controller", marks=pytest.mark.java),
    pytest.param(KAFKA, OTTLA, id="kafka broker, ottla controller", marks=pytest.mark.java),
]


def write_whatever_happens(cluster: Cluster, topic: str) -> None:
    """Kafka notices that a disk is full when it writes. It answers some of the writes with UNKNOWN_SERVER_ERROR, which
    clients do not repeat.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **PATIENCE})
    for number in range(4 * LEFT_BYTES // len(SMALL_VALUE)):
        producer.produce(topic, SMALL_VALUE, partition=number % PARTITIONS)
    flush(producer)


def leads_and_follows(cluster: Cluster, topic: str, broker: int) -> tuple[set[int], set[int]]:
    """The partitions that it leads, and those of which it is an in-sync replica."""
    found = cluster.partitions(topic)
    led = {index for index, partition in found.items() if partition.leader == broker}
    return led, {index for index, partition in found.items() if broker in partition.isr}


@pytest.mark.parametrize(("broker", "controller"), KINDS)
def test_leaders_move_away_from_one_full_disk_of_two(
    small_disk: Callable[[str], Path],
    tmp_path: Path,
    topic_name: str,
    broker: str,
    controller: str,
) -> None:
    disk = small_disk("full")
    specs = separate(3, 1, broker_kind=OTTLA, controller_kind=controller)
    specs[0] = specs[0]._replace(kind=broker)
    own = {1: {"log.dirs": f"{tmp_path}/n1,{disk}", "metadata.log.dir": f"{tmp_path}/n1"}}
    with run_cluster(tmp_path, specs, own=own) as cluster:
        for name in (topic_name, f"{topic_name}-other"):
            create_on(cluster, name, [[1, 2, 3]] * PARTITIONS, min_insync_replicas=2)
        with ProduceLoad(cluster, topic_name, PARTITIONS) as load:
            load.wait_for_more()
            on_disk = {index for index in range(PARTITIONS) if (disk / f"{topic_name}-{index}").exists()}
            others = set(range(PARTITIONS)) - on_disk
            assert on_disk
            assert others
            with load.paused() if broker == KAFKA else contextlib.nullcontext():
                ballast = fill_up(disk)
                if broker == KAFKA:
                    write_whatever_happens(cluster, f"{topic_name}-other")
                cluster.wait_until(
                    lambda: all(cluster.partition(topic_name, index).leader in (2, 3) for index in on_disk),
                    f"partitions {on_disk} are not led by broker 1",
                )
            load.wait_for_more()
            cluster.wait_until(
                lambda: leads_and_follows(cluster, topic_name, 1) == (others, others),
                f"broker 1 leads {others} and is in sync in no others",
            )
            assert cluster.nodes[1].is_running
            ballast.unlink()
            cluster.nodes[1].stop()
            cluster.restart(1)
            cluster.wait_until_in_sync(topic_name)
            load.wait_for_more()
            load.finish()
        load.check()
