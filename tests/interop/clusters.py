"""Clusters of real processes, of Ottla, of Apache Kafka, or of both, and helpers that wait for their state.

    with run_cluster(tmp_path, combined(3)) as cluster:
        cluster.nodes[cluster.controller_id()].kill()

Every process is killed by its pid at the end. State is read with plain requests to the nodes that run, so a node that
is paused or dead delays nothing.
"""

import base64
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.interop.brokers import free_ports
from tests.interop.cluster_nodes import BROKER, COMBINED, CONTROLLER, OTTLA, THIS_MACHINE, ClusterNode
from tests.interop.kio_client import KioClient
from tests.interop.network_hosts import Host

METADATA, FIND_COORDINATOR, ELECT_LEADERS, DESCRIBE_QUORUM = 3, 10, 43, 55
READY_TIMEOUT_S = 60.0
WAIT_TIMEOUT_S = 40.0
ASK_TIMEOUT_S = 3.0
FIRST_CONTROLLER_ID = 101
# Sessions of three seconds instead of nine keep the tests short. Everything else has its default.
DEFAULTS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
_T = TypeVar("_T")


class NodeSpec(NamedTuple):
    node_id: int
    roles: str = COMBINED
    kind: str = OTTLA


class Partition(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


# No broker that answers knows it.
UNKNOWN = Partition(leader=-2, leader_epoch=-1, replicas=(), isr=())


def combined(count: int) -> list[NodeSpec]:
    return [NodeSpec(node_id) for node_id in range(1, count + 1)]


def separate(brokers: int, controllers: int, *, broker_kind: str, controller_kind: str) -> list[NodeSpec]:
    return [
        *(NodeSpec(node_id, BROKER, broker_kind) for node_id in range(1, brokers + 1)),
        *(NodeSpec(FIRST_CONTROLLER_ID + index, CONTROLLER, controller_kind) for index in range(controllers)),
    ]


class Cluster:
    """`ports` are kept over restarts: a node finds the others by the addresses in its config. `own` are configs of
    single nodes.
    """

    def __init__(
        self,
        folder: Path,
        specs: Sequence[NodeSpec],
        set: Mapping[str, str] | None = None,
        hosts: Mapping[int, Host] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        ports = iter(free_ports(2 * len(specs)))
        self.cluster_id = new_cluster_id()
        self.nodes = {
            spec.node_id: ClusterNode(
                spec.node_id,
                spec.kind,
                spec.roles,
                folder / f"n{spec.node_id}",
                next(ports) if BROKER in spec.roles else 0,
                next(ports) if CONTROLLER in spec.roles else 0,
                (hosts or {}).get(spec.node_id, THIS_MACHINE),
            )
            for spec in specs
        }
        self._set = dict(set or {})
        self._own = dict(own or {})

    # Processes

    def format(self, *features: str) -> None:
        """`features` are the first levels, as NAME=LEVEL; only Ottla's nodes take them."""
        for node in self.nodes.values():
            node.write_config(self.properties_of(node))
        flags = [part for feature in features for part in ("--feature", feature)]
        processes = [
            (node, node.format(self.cluster_id, *(flags if node.kind == OTTLA else [])))
            for node in self.nodes.values()
        ]
        for node, process in processes:
            said, _ = process.communicate(timeout=READY_TIMEOUT_S)
            assert process.returncode == 0, f"{node} cannot be formatted:\n{said.decode()}"

    def start(self) -> float:
        """Returns the seconds until every broker serves."""
        began = time.monotonic()
        for node in self.nodes.values():
            node.start()
        self.wait_until_ready(READY_TIMEOUT_S)
        return time.monotonic() - began

    def restart(self, node_id: int) -> None:
        """Starts a node that is not running, with its data and its ports, and waits until it serves."""
        self.nodes[node_id].start()
        self.wait_until_ready()

    def restore(self) -> None:
        """Brings every node back, after a test that killed or paused some."""
        for node in self.nodes.values():
            if node.is_paused:
                node.resume()
            if not node.is_running:
                node.kill()
                node.start()
        self.wait_until_ready()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def add(
        self,
        spec: NodeSpec,
        name: str,
        *,
        cluster_id: str | None = None,
        set: Mapping[str, str] | None = None,
    ) -> ClusterNode:
        """One more node with ports of its own, formatted, not started, and not one of `nodes`."""
        port, controller_port = free_ports(2)
        folder = next(iter(self.nodes.values())).data_dir.parent / name
        is_controller = CONTROLLER in spec.roles
        node = ClusterNode(
            spec.node_id, spec.kind, spec.roles, folder, port, controller_port if is_controller else 0
        )
        node.write_config(self.properties_of(node) | dict(set or {}))
        formatting = node.format(cluster_id or self.cluster_id)
        said, _ = formatting.communicate(timeout=READY_TIMEOUT_S)
        assert formatting.returncode == 0, said.decode()
        return node

    def properties_of(self, node: ClusterNode) -> dict[str, str]:
        voters = [other for other in self.nodes.values() if other.is_controller]
        listeners = [f"PLAINTEXT://{node.bootstrap}"] if node.is_broker else []
        listeners += [f"CONTROLLER://{node.controller_address}"] if node.is_controller else []
        properties = {
            "process.roles": node.roles,
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(
                f"{voter.node_id}@{voter.controller_address}" for voter in voters
            ),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": ",".join(listeners),
            "log.dirs": str(node.data_dir),
        }
        if node.is_broker:
            properties["inter.broker.listener.name"] = "PLAINTEXT"
        return properties | DEFAULTS | self._set | dict(self._own.get(node.node_id, {}))

    # State

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def running_brokers(self) -> list[ClusterNode]:
        return [node for node in self.brokers if node.is_running]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.brokers)

    def quorum(self) -> Any:
        """The quorum as its leader describes it; None if no running controller leads."""
        found = []
        for node in self.nodes.values():
            if node.is_controller and node.is_running:
                with contextlib.suppress(OSError):
                    topics = ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},)
                    answer = ask(node.controller_address, DESCRIBE_QUORUM, 2, topics=topics)
                    found += [p for t in answer.topics for p in t.partitions if p.error_code == 0]
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    def controller_id(self, *, other_than: int | None = None) -> int:
        """Waits until a controller leads the quorum and knows its high watermark, and returns its id."""

        def find() -> int | None:
            quorum = self.quorum()
            if quorum is None or quorum.high_watermark < 0 or quorum.leader_id == other_than:
                return None
            return int(quorum.leader_id)

        return self.wait_for(find, f"a controller other than {other_than} leads")

    def metadata(self, topic: str | None = None) -> Any:
        """As the first running broker answers."""
        topics = () if topic is None else (topic,)
        for node in self.running_brokers:
            with contextlib.suppress(OSError):
                return ask_metadata(node, *topics)
        return None

    def topics_of(self, node_id: int) -> set[str]:
        """The topics that this broker knows."""
        return {str(topic.name) for topic in ask_metadata(self.nodes[node_id], all_topics=True).topics}

    def knows(self, node_id: int, topics: Iterable[str]) -> bool:
        """Whether this broker answers, and knows all these topics."""
        with contextlib.suppress(OSError):
            return set(topics) <= self.topics_of(node_id)
        return False

    def partitions(self, topic: str) -> dict[int, Partition]:
        """Empty if no broker knows the topic."""
        answer = self.metadata(topic)
        return {} if answer is None else partitions_in(answer)

    def partition(self, topic: str, partition: int = 0) -> Partition:
        return self.partitions(topic).get(partition, UNKNOWN)

    def coordinator_id(self, key: str, *, of_transactions: bool = False) -> int:
        """Waits for the coordinator of a group or a transactional id, and returns its broker."""

        def find() -> int | None:
            node = self.running_brokers[0]
            kind = 1 if of_transactions else 0
            with contextlib.suppress(OSError):
                answer = ask(node.bootstrap, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=(key,))
                (found,) = answer.coordinators
                return int(found.node_id) if found.error_code == 0 else None
            return None

        return self.wait_for(find, f"{key} has a coordinator")

    def elect_preferred_leaders(self) -> None:
        """Of all partitions: after restarts, one broker may lead everything."""
        self.wait_until_in_sync(*self.topics_of(self.running_brokers[0].node_id))
        with contextlib.closing(KioClient(self.running_brokers[0].bootstrap, WAIT_TIMEOUT_S)) as client:
            answer = client.ask(ELECT_LEADERS, 2, election_type=0, topic_partitions=None, timeout=10_000)
        assert answer.error_code == 0, answer

    # Waiting

    def wait_for(self, find: Callable[[], _T | None], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> _T:
        """The first result that is not None. A node that ended by itself, or the deadline, fails the test."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = find()
            if found is not None:
                return found
            for node in self.nodes.values():
                code = None if node.process is None else node.process.poll()
                assert code is None, f"{node} ended with code {code}:\n{node.log_tail()}"
            assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain until {what}"
            time.sleep(0.02)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        self.wait_for(lambda: True if condition() else None, what, timeout_s)

    def wait_until_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Until every running broker knows all running brokers, and the quorum has a leader."""
        self.controller_id()
        expected = {node.node_id for node in self.running_brokers}

        def is_ready() -> bool:
            for node in self.running_brokers:
                try:
                    answer = ask_metadata(node)
                except OSError:
                    return False
                # A port that a node has not bound yet may belong to another cluster for a moment.
                if answer.cluster_id != self.cluster_id:
                    return False
                if not expected <= {int(broker.node_id) for broker in answer.brokers}:
                    return False
            return True

        self.wait_until(is_ready, f"brokers {sorted(expected)} serve", timeout_s)

    def leader_of(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """Waits until the partition has a leader that is not `other_than`."""

        def find() -> int | None:
            found = self.partitions(topic).get(partition)
            return found.leader if found and found.leader not in (-1, other_than) else None

        return self.wait_for(find, f"{topic}-{partition} has a leader other than {other_than}")

    def wait_until_copied(self, topic: str, partition: int = 0) -> bytes:
        """Until all replicas have the same files; returns the records."""

        def find() -> bytes | None:
            replicas = self.partition(topic, partition).replicas
            if not replicas:
                return None
            first, *others = [self.nodes[node_id].log_files(topic, partition) for node_id in replicas]
            return b"".join(first.values()) if all(files == first for files in others) else None

        return self.wait_for(find, f"all replicas of {topic}-{partition} have the same bytes")

    def wait_until_in_sync(self, *topics: str, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Until every replica of the topics is in its ISR, every partition has a leader, and all running brokers know
        that: a broker that was cut off has an old state, and would give it to clients.
        """

        def is_in_sync() -> bool:
            try:
                for topic in topics:
                    found, *others = [
                        partitions_in(ask_metadata(node, topic)) for node in self.running_brokers
                    ]
                    if not found or any(other != found for other in others):
                        return False
                    if any(p.leader < 0 or set(p.isr) != set(p.replicas) for p in found.values()):
                        return False
            except OSError:
                return False
            return True

        self.wait_until(is_in_sync, f"all replicas of {', '.join(topics)} are in sync", timeout_s)

    def log_tails(self) -> str:
        return "\n".join(f"--- {node}\n{node.log_tail()}" for node in self.nodes.values())


@contextlib.contextmanager
def run_cluster(
    folder: Path,
    specs: Sequence[NodeSpec],
    set: Mapping[str, str] | None = None,
    hosts: Mapping[int, Host] | None = None,
    own: Mapping[int, Mapping[str, str]] | None = None,
) -> Iterator[Cluster]:
    """A cluster that serves; its data and its logs are in `folder`. Nodes without an entry in `hosts` run here."""
    cluster = Cluster(folder, specs, set, hosts, own)
    try:
        cluster.format()
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def ask(address: str, api_key: int, version: int, **values: Any) -> Any:
    """Raises OSError if the node does not answer soon."""
    with contextlib.closing(KioClient(address, ASK_TIMEOUT_S)) as client:
        return client.ask(api_key, version, **values)


def ask_metadata(node: ClusterNode, *topics: str, all_topics: bool = False) -> Any:
    return ask(
        node.bootstrap,
        METADATA,
        12,
        topics=None if all_topics else tuple({"topic_id": None, "name": topic} for topic in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def partitions_in(answer: Any) -> dict[int, Partition]:
    """Of the only topic in a Metadata response."""
    return {
        int(p.partition_index): Partition(
            int(p.leader_id),
            int(p.leader_epoch),
            tuple(map(int, p.replica_nodes)),
            tuple(map(int, p.isr_nodes)),
        )
        for t in answer.topics
        for p in t.partitions
    }


def new_cluster_id() -> str:
    """Does not begin with a dash, which a command would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
