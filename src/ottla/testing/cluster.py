"""`KafkaCluster`: several brokers for tests, each a process of its own, which can be stopped, killed and paused."""

import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.admin.signal_flag import SignalFlag
from ottla.broker.formatter import format_directories, new_cluster_id
from ottla.cli.cluster_layout import (
    NODE_LOG,
    NodeLayout,
    node_command,
    plan_nodes,
    properties_of,
    properties_text,
)
from ottla.cli.local_cluster import LocalCluster, Node, NodeSpec
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.testing.broker_configs import GROUP_CONFIGS, users_configs
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.helpers import KafkaHelpers

_READY_S = 120.0
_STOP_S = 30.0
_KNOWN_S = 30.0
_POLL_S = 0.02


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
        self._config = GROUP_CONFIGS | users_configs(config)
        self._data: tempfile.TemporaryDirectory[str] | None = None
        self._layout: dict[int, NodeLayout] = {}
        self._nodes: dict[int, Node] = {}
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
            raise BrokerStoppedError(
                "this cluster does not run. Use it inside `with KafkaCluster() as kafka`"
            )
        return ",".join(self.address(node_id) for node_id in self._layout)

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes."""
        return sorted(self._layout)

    def address(self, node: int) -> str:
        return self._layout_of(node).broker_address or ""

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
        name = super().create_topic(
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
        self._nodes.clear()
        self._paused.clear()
        self._layout = {}
        if self._data is not None:
            self._data.cleanup()
            self._data = None

    def _launch(self, node_id: int) -> Node:
        layout = self._layout[node_id]
        command = node_command(layout.properties_path)
        self._nodes[node_id] = node = Node(NodeSpec(node_id, command, _log_path(layout), has_controller=True))
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
            raise BrokerStoppedError(
                "this cluster does not run. Use it inside `with KafkaCluster() as kafka`"
            )
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
