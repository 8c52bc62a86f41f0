"""Three nodes of Ottla or of Apache Kafka, each broker and controller, with the same server.properties on both sides.

Nothing is tuned: timeouts and the replication of the internal topics have their defaults. Processes are ended by their
pid.
"""

import contextlib
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import (
    RunningBroker,
    format_kafka,
    free_ports,
    new_cluster_id,
    serve_kafka,
)
from tests.interop.kafka_jars import ensure_jars
from tests.interop.kio_client import KioClient
from tests.interop.wire import METADATA, WireClient, request

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.quorum import QuorumDescription, describe_quorum

OTTLA = Path(__file__).parents[1] / ".venv" / "bin" / "ottla"
NODES = 3
KAFKA_HEAP = "768m"
TIMEOUT_S = 180.0
POLL_S = 0.01
QUIET = {"log_level": 0}  # librdkafka would print every broken connection


@dataclass
class RunningCluster:
    """The nodes by their id. `start_seconds` is the time until every node knew all of them."""

    name: str
    nodes: dict[int, RunningBroker]
    start_seconds: float = 0.0

    @cached_property
    def admin(self) -> AdminClient:
        """It is kept: an admin client drops its requests when nobody holds it any more."""
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    @property
    def running(self) -> list[RunningBroker]:
        return [node for node in self.nodes.values() if node.is_alive()]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.running)

    def start(self) -> None:
        """Starts the nodes that do not run, and returns when every node knows all of them."""
        began = time.monotonic()
        for node in self.nodes.values():
            if not node.is_alive():
                node.launch()
        self.wait_until(self._is_complete, "every node knows all of them")
        self.start_seconds = time.monotonic() - began

    def stop(self) -> None:
        """SIGTERM to all nodes at once: the last one could not leave in order, without a majority of controllers."""
        for node in self.running:
            os.kill(node.pid, signal.SIGTERM)
        for node in self.nodes.values():
            node.stop()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def pause(self, node_id: int) -> None:
        os.kill(self.nodes[node_id].pid, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        os.kill(self.nodes[node_id].pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """Of all nodes together, since each was started."""
        return sum(node.cpu_seconds() for node in self.running)

    def memory_mb(self) -> float:
        """Of the node that has most."""
        return max(node.memory_kb() for node in self.running) / 1_000

    def create_topic(self, topic: NewTopic) -> None:
        """Returns when all partitions have a leader and all replicas are in sync."""
        self.admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
        witness = self.running[0]
        self.wait_until(lambda: in_sync(witness.bootstrap, topic.topic), f"{topic.topic} has its replicas")

    def wait_for_replicas(self, restarted: int) -> None:
        """Returns when all replicas of all partitions are in sync, as another node than the restarted one says."""
        witness = next(node for node_id, node in self.nodes.items() if node_id != restarted)
        self.wait_until(lambda: in_sync(witness.bootstrap), "all replicas are in sync")

    def quorum(self) -> QuorumDescription:
        """Asks again while there is no leader."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                found = describe_quorum(Cluster(self.bootstrap, QUIET))
                if found.leader_id is not None:
                    return found
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def active_controller(self) -> int:
        leader = self.quorum().leader_id
        assert leader is not None
        return leader

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises RuntimeError with the end of a log if a node ends meanwhile, or after some minutes."""
        launched = self.running
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            ended = [node for node in launched if not node.is_alive()]
            if ended or time.monotonic() > deadline:
                node = ended[0] if ended else launched[0]
                reason = f"{node.name} ended" if ended else f"waited {TIMEOUT_S:.0f} s"
                raise RuntimeError(f"{reason} before {what}:\n{node.log_tail(15)}")
            time.sleep(POLL_S)

    def _is_complete(self) -> bool:
        return all(known_brokers(node.bootstrap) == len(self.nodes) for node in self.nodes.values())


def known_brokers(bootstrap: str) -> int:
    """How many brokers a node has in its metadata (Metadata v1 without topics); 0 if it does not respond."""
    try:
        with WireClient(bootstrap, timeout_s=2.0) as client:
            response = client.ask(request(METADATA, 1, struct.pack(">i", 0)))
    except OSError:
        return 0
    return int(struct.unpack_from(">i", response, 4)[0])


def in_sync(bootstrap: str, topic: str | None = None) -> bool:
    """Whether a node has a leader and all replicas in sync in its metadata, for each partition of this topic or of all.

    One node is asked, and no client that picks any: a node that has just started may know an old state.
    """
    client = KioClient(bootstrap, TIMEOUT_S)
    try:
        response = client.ask(METADATA, 12, topics=None, include_topic_authorized_operations=False)
    finally:
        client.close()
    asked = [found for found in response.topics if topic is None or found.name == topic]
    return (topic is None or bool(asked)) and all(
        partition.leader_id >= 0 and len(partition.isr_nodes) == len(partition.replica_nodes)
        for found in asked
        for partition in found.partitions
    )


@contextlib.contextmanager
def run_cluster(name: str, folder: Path) -> Iterator[RunningCluster]:
    """Three formatted nodes, ready to serve. All of their files are in `folder`."""
    folder.mkdir(parents=True)
    ports = free_ports(2 * NODES)
    voters = ",".join(f"{n}@127.0.0.1:{ports[NODES + n - 1]}" for n in range(1, NODES + 1))
    cluster_id = new_cluster_id()
    nodes = {
        n: _formatted(name, folder / f"node-{n}", n, (ports[n - 1], ports[NODES + n - 1]), voters, cluster_id)
        for n in range(1, NODES + 1)
    }
    cluster = RunningCluster(name, nodes)
    os.sync()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def _formatted(
    name: str, data_dir: Path, node_id: int, ports: tuple[int, int], voters: str, cluster_id: str
) -> RunningBroker:
    config = Path(f"{data_dir}.server.properties")
    properties = _properties(data_dir, node_id, ports, voters)
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    formatted, served = _commands(name, config, cluster_id)
    done = subprocess.run(formatted, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"node {node_id} of {name} cannot be formatted: {(done.stdout + done.stderr)[-800:]}"
        )
    return RunningBroker(
        f"node {node_id} of {name}",
        data_dir,
        Path(f"{data_dir}.log"),
        command_for=lambda _: served,
        find_bootstrap=lambda _, port: f"127.0.0.1:{port}",
        port=ports[0],
        bootstrap=f"127.0.0.1:{ports[0]}",
    )


def _commands(name: str, config: Path, cluster_id: str) -> tuple[Sequence[str], Sequence[str]]:
    """To format a node, and to serve."""
    if name == "ottla":
        ottla = [str(OTTLA)]
        return (
            [*ottla, "format", "--config", str(config), "--cluster-id", cluster_id],
            [*ottla, "serve", "--config", str(config)],
        )
    libs = ensure_jars()
    assert libs is not None
    return format_kafka(libs, config, cluster_id), serve_kafka(libs, config, KAFKA_HEAP)


def _properties(data_dir: Path, node_id: int, ports: tuple[int, int], voters: str) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data_dir),
    }
