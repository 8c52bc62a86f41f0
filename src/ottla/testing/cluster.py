"""`KafkaCluster`: several brokers for tests, each a process of its own, which can be stopped, killed and paused."""

import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.admin.signal_flag import SignalFlag
from ottla.broker.formatter import format_directories, new_cluster_id
from ottla.cli.cluster_layout import (
    NODE_LOG,
    NodeLayout,
    plan_nodes,
    properties_of,
    properties_text,
)
from ottla.cli.local_cluster import LocalCluster, Node, NodeSpec
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.testing.broker_configs import GROUP_CONFIGS, users_configs
from ottla.testing.controlled_network import WHOLE
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.helpers import KafkaHelpers, new_topic_name, wait_until
from ottla.testing.node_control import ClusterNode, wait_for_calls
from ottla.testing.time import advanced_ms

_READY_S = 120.0
_STOP_S = 30.0
_KNOWN_S = 30.0
_MOVE_S = 60.0
_POLL_S = 0.02
_NOT_STARTED = "this cluster does not run. Use it inside `with KafkaCluster() as kafka`"


class KafkaCluster(KafkaHelpers):
    """`nodes` brokers, which are also the controllers, on free ports of 127.0.0.1; their ids count from 1.

    `config` has configs of all brokers, in Kafka's names. Raises ValueError for those of ports and folders. A topic has
    three replicas unless there are fewer brokers.
    """

    def __init__(self, nodes: int = 3, config: Mapping[str, object] | None = None) -> None:
        super().__init__()
        if not 1 <= nodes <= 100:
            raise ValueError(f"a cluster of {nodes} nodes: expected 1 to 100")
        self._size = nodes
        self._config = GROUP_CONFIGS | {"connections.max.idle.ms": "-1"} | users_configs(config)
        self._data: tempfile.TemporaryDirectory[str] | None = None
        self._layout: dict[int, NodeLayout] = {}
        self._nodes: dict[int, Node] = {}
        self._controls: dict[int, ClusterNode] = {}
        self._paused: set[int] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, also of those that are stopped."""
        if not self._layout:
            raise BrokerStoppedError(_NOT_STARTED)
        return ",".join(self.address(node_id) for node_id in self._layout)

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return sorted(self._layout)

    def address(self, node: int) -> str:
        return self._layout_of(node).broker_address or ""

    def node(self, node: int) -> ClusterNode:
        """A node, with the methods for its faults and its disk."""
        self._layout_of(node)
        return self._controls[node]

    def log(self, node: int) -> str:
        """What a node has logged so far."""
        return _log_path(self._layout_of(node)).read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts all nodes and waits until they serve."""
        if self._layout:
            return
        self._data = tempfile.TemporaryDirectory(prefix="ottla-testing-", ignore_cleanup_errors=True)
        try:
            folder = Path(self._data.name)
            layout = plan_nodes(folder, self._size, 0, "127.0.0.1", 0)
            _format(layout, self._config)
            self._layout = {each.node_id: each for each in layout}
            self._controls = {
                node_id: ClusterNode(node_id, partial(self._is_serving, node_id)) for node_id in self._layout
            }
            for node_id in self._layout:
                self._launch(node_id)
            self._wait_until_ready(list(self._nodes.values()))
            self.wait_until_active()
        except BaseException:  # also Ctrl-C
            self.close()
            raise

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Likewise. Returns when every node that runs knows the topic."""
        from ottla.admin.cluster import UnreachableError

        name = name or new_topic_name()
        try:
            super().create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=config
            )
        except UnreachableError:
            if not self._paused:
                raise
            # The request went to a node that is paused. The others have fenced it by now, and name it to no new client.
            self._close_clients()
            super().create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=config
            )
        self._wait_until_known(name)
        return name

    def _wait_until_known(self, topic: str) -> None:
        deadline = time.monotonic() + _KNOWN_S
        waiting = [node_id for node_id in self.nodes if self._is_serving(node_id)]
        while waiting:
            if _knows(self.address(waiting[0]), topic) or not self._is_serving(waiting[0]):
                waiting.pop(0)
            elif time.monotonic() > deadline:
                raise TimeoutError(f"node {waiting[0]} does not know topic {topic} after {_KNOWN_S:g} s")
            else:
                time.sleep(_POLL_S)

    def _is_serving(self, node: int) -> bool:
        return node in self._nodes and self._nodes[node].exit_code is None and node not in self._paused

    def stop(self, node: int) -> None:
        """Stops a node cleanly: it hands over its partitions first."""
        found = self._running(node)
        self._resume(node)
        found.process.send_signal(signal.SIGTERM)
        try:
            found.process.wait(_STOP_S)
        finally:
            found.process.kill()
            found.process.wait()
            del self._nodes[node]

    def kill(self, node: int) -> None:
        """Ends a node at once, with SIGKILL."""
        found = self._running(node)
        found.process.kill()
        found.process.wait()
        del self._nodes[node]
        self._paused.discard(node)

    def pause(self, node: int) -> None:
        """Stops a node from running, as a long garbage collection would do: its connections stay open."""
        self._running(node).process.send_signal(signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        self._running(node)
        self._resume(node)

    def restart(self, node: int) -> None:
        """Starts a node again, after a clean stop if it runs. Returns when it serves."""
        if node in self._nodes and self._nodes[node].exit_code is None:
            self.stop(node)
        self._nodes.pop(node, None)
        self._layout_of(node)
        self._wait_until_ready([self._launch(node)])

    def isolate(self, *nodes: int, clients: bool = True) -> None:
        """Cuts each of the nodes off from all others, and also from clients unless `clients=False`.

        Connections stay open, but no byte arrives until `heal`.
        """
        for node in nodes:
            self._layout_of(node)
        for node in nodes:
            control = self._controls[node]
            control.set_cut(control.cut._replace(inbound=clients, outbound=True))
        if not clients:  # so their own listeners are open, and the others must not use them
            unreachable = frozenset(address for node in nodes for address in self._sockets(node))
            for node, control in self._controls.items():
                targets = unreachable - self._sockets(node)
                control.set_cut(control.cut._replace(targets=control.cut.targets | targets))

    def heal(self) -> None:
        """The network is whole again."""
        for control in self._controls.values():
            control.set_cut(WHOLE)

    def _sockets(self, node: int) -> frozenset[tuple[str, int]]:
        layout = self._layout[node]
        addresses = (layout.broker_address, layout.controller_address)
        parts = (address.rpartition(":") for address in addresses if address)
        return frozenset((host, int(port)) for host, _, port in parts)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advances the time of all nodes, and waits until they have found each other again.

        Their sessions with the controller and its elections expire too, as after a machine that was suspended.
        """
        milliseconds = advanced_ms(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if not self._layout:
            raise BrokerStoppedError(_NOT_STARTED)
        calls = []
        for node, control in self._controls.items():
            with suppress(BrokerStoppedError):
                call = control.start_advance(milliseconds)
                calls += [call] if self._is_serving(node) else []
        wait_for_calls(calls)
        self.wait_until_active()
        self._wait_until_led()
        # The leaders apply the retention, and they may have changed meanwhile.
        wait_for_calls(
            [self._controls[node].start_call("advance", 0) for node in self.nodes if self._is_serving(node)]
        )

    def apply_retention(self, topic: str) -> None:
        """Removes the records that retention.ms and retention.bytes allow to remove, at once, on all nodes that run."""
        self._run_where_hosted("apply_retention", topic)

    def compact(self, topic: str) -> None:
        """Compacts a topic at once, with its newest records, on all nodes that run."""
        self._run_where_hosted("compact", topic)

    def _run_where_hosted(self, name: str, topic: str) -> None:
        from ottla.admin.topics import describe_topics

        (description,) = describe_topics(self._cluster, [topic])
        hosts = {replica for partition in description.partitions for replica in partition.replicas}
        wait_for_calls(
            [self._controls[node].start_call(name, topic) for node in sorted(hosts) if self._is_serving(node)]
        )

    def move_leader(self, topic: str, partition: int, node: int, *, timeout: float = _MOVE_S) -> None:
        """Makes a node the leader of a partition. It becomes a replica if it is none. Raises TimeoutError."""
        from ottla.testing.leadership import move_leader

        self._running(node)
        move_leader(self._cluster, TopicPartition(topic, partition), node, timeout)

    def move_coordinator(
        self, group: str, node: int, *, transactional: bool = False, timeout: float = _MOVE_S
    ) -> None:
        """Makes a node the coordinator of a group, or of a transactional id, that exists. Raises TimeoutError."""
        from ottla.testing.leadership import GROUPS, TRANSACTIONS, coordinator_partition, move_leader

        self._running(node)
        found = coordinator_partition(self._cluster, group, TRANSACTIONS if transactional else GROUPS)
        move_leader(self._cluster, found, node, timeout)

    def _wait_until_led(self) -> None:
        from ottla.admin.cluster import ClusterError

        def is_led() -> bool:
            try:
                topics = self._cluster.metadata().topics.values()
            except ClusterError:
                return False
            return all(part.leader >= 0 for topic in topics for part in topic.partitions.values())

        if not wait_until(is_led, _READY_S):
            raise TimeoutError(f"some partitions have no leader after {_READY_S:g} s")

    def wait_until_active(self, timeout: float = _READY_S) -> None:
        """Waits until every node that runs knows the others that run as active brokers. Raises TimeoutError."""
        from ottla.admin.brokers import ACTIVE, list_brokers
        from ottla.admin.cluster import Cluster, ClusterError

        expected = {node_id for node_id in self._nodes if node_id not in self._paused}
        deadline, waiting = time.monotonic() + timeout, sorted(expected)
        while waiting:
            try:
                brokers = list_brokers(Cluster(self.address(waiting[0])), None)
                if expected <= {broker.id for broker in brokers if broker.state == ACTIVE}:
                    waiting.pop(0)
                    continue
            except ClusterError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {waiting[0]} does not know {sorted(expected)} after {timeout:g} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Ends all nodes and removes their data."""
        self._close_clients()
        for node in self._nodes.values():
            node.process.kill()
        for node in self._nodes.values():
            node.process.wait()
        for control in self._controls.values():
            control.close_link()
        self._controls = {}
        self._nodes.clear()
        self._paused.clear()
        self._layout = {}
        if self._data is not None:
            self._data.cleanup()
            self._data = None

    def _launch(self, node_id: int) -> Node:
        layout = self._layout[node_id]
        control = self._controls[node_id]
        descriptor = control.open_link()
        command = [
            sys.executable,
            "-m",
            "ottla.testing.cluster_node",
            str(descriptor),
            str(layout.properties_path),
        ]
        spec = NodeSpec(node_id, command, _log_path(layout), has_controller=True, descriptors=(descriptor,))
        self._nodes[node_id] = node = Node(spec)
        control.link_opened()
        return node

    def _wait_until_ready(self, nodes: list[Node]) -> None:
        starting = LocalCluster([], SignalFlag(), report=lambda message: None)
        starting.nodes = nodes
        starting.wait_until_ready(_READY_S)

    def _resume(self, node: int) -> None:
        self._nodes[node].process.send_signal(signal.SIGCONT)
        self._paused.discard(node)

    def _layout_of(self, node: int) -> NodeLayout:
        if not self._layout:
            raise BrokerStoppedError(_NOT_STARTED)
        if node not in self._layout:
            raise ValueError(f"there is no node {node}. The nodes: {', '.join(map(str, self.nodes))}")
        return self._layout[node]

    def _running(self, node: int) -> Node:
        self._layout_of(node)
        found = self._nodes.get(node)
        if found is None or found.exit_code is not None:
            raise BrokerStoppedError(f"node {node} does not run. Start it with restart({node})")
        return found


def _format(layout: list[NodeLayout], config: Mapping[str, str]) -> None:
    env = real_env()
    try:
        cluster_id = new_cluster_id(env)
        for node in layout:
            properties = properties_of(node, layout, config)
            format_directories(env, BrokerConfig(properties), cluster_id=cluster_id, ignore_formatted=True)
            node.properties_path.write_text(properties_text(node, properties), encoding="utf-8")
    finally:
        env.threads.close()


def _knows(address: str, topic: str) -> bool:
    """Asks this node itself: a client with the address of one node also asks the others."""
    from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
    from kio.schema.metadata.v12.response import MetadataResponse
    from kio.schema.types import TopicName

    from ottla.admin.cluster import Cluster, ClusterError
    from ottla.admin.nodes import call_any

    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    try:
        response = call_any(Cluster(address), request, MetadataResponse, f"Topic {topic}")
    except ClusterError:
        return False
    return all(found.error_code is ErrorCode.none for found in response.topics)


def _log_path(layout: NodeLayout) -> Path:
    return layout.directory / NODE_LOG
