"""What every node has, whatever its roles: directories, a part in the metadata quorum, the controller listener."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.active_controller import ActiveController
from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.config_validation import validate_configs
from ottla.broker.connection import Dispatch
from ottla.broker.controller_registration import keep_controller_registered
from ottla.broker.data_directories import check_metadata_dir_is_online, identify_directories
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.quorum.metadata_log import METADATA_PARTITION
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings, raft_settings
from ottla.broker.quorum.voter_upkeep import keep_voter_current
from ottla.broker.quorum.voters import (
    bootstrap_servers,
    check_voters_are_known,
    controller_listener_name,
    is_its_own_quorum,
    names_voters,
    parse_voters,
    voter_endpoint,
    voter_ids,
)
from ottla.broker.registration import advertised_end_points
from ottla.broker.serial_thread import SerialThread
from ottla.broker.server import Server
from ottla.broker.server_settings import new_server
from ottla.broker.services import NodeServices
from ottla.core.controller.image import KRAFT_VERSION
from ottla.core.controller.settings import SUPPORTED_FEATURES, ControllerSettings
from ottla.core.raft.voter_set import Voter, VoterEndpoint
from ottla.env import Env
from ottla.env.real import real_env
from ottla.model.config import BrokerConfig, ConfigError, unsupported_errors
from ottla.model.errors import KafkaError
from ottla.protocol.api_keys import ListenerKind
from ottla.protocol.metadata_records.records import Endpoint
from ottla.rpc.addresses import Address
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import read_meta_properties

if TYPE_CHECKING:
    from ottla.broker.metrics.node_metrics import NodeMetrics
    from ottla.broker.quorum.peers import QuorumPeers
    from ottla.rpc.node_connections import NodeConnections

logger = logging.getLogger("ottla.broker")

# What a broker may need to find a new controller, once it no longer waits for the one before.
_REPORT_MS = 500
# A live broker sends a heartbeat at once when its connection is lost. This part of its session is left for that: 1.5 s
# of the default 9 s, so that one lost packet of the new connection (TCP repeats it after 1 s) is not fatal.
_DISCONNECT_GRACE = 1 / 6


def set_failure(failed: "asyncio.Future[Exception]", error: Exception) -> None:
    """The first failure counts."""
    if not failed.done():
        failed.set_result(error)


async def run_unless_failed(work: Coroutine[Any, Any, None], failed: "asyncio.Future[Exception]") -> None:
    """Raises the failure as soon as the node has failed: the work may wait for what the node no longer does."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task, failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    error = None if task.cancelled() else task.exception()
    if failed.done() and (error is not None or task.cancelled()):
        # An error of the work follows from the failure.
        raise failed.result()
    await task


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    session_timeout_ms = config.get_int("broker.session.timeout.ms")
    # A broker that asks a controller which hangs learns of the next one after this timeout.
    request_timeout_ms = config.get_int("controller.quorum.request.timeout.ms")
    report_ms = max(request_timeout_ms, config.get_int("broker.heartbeat.interval.ms")) + _REPORT_MS
    return ControllerSettings(
        partial(validate_configs, config),
        num_partitions=config.get_int("num.partitions"),
        default_replication_factor=config.get_int("default.replication.factor"),
        node_id=config.node_id,
        session_timeout_ms=session_timeout_ms,
        disconnect_grace_ms=int(session_timeout_ms * _DISCONNECT_GRACE),
        activation_grace_ms=report_ms,
        min_insync_replicas=config.get_int("min.insync.replicas"),
        unclean_leader_election=config.get_bool("unclean.leader.election.enable"),
    )


class QuorumNode:
    """`fail` is called with the reason if the node cannot go on."""

    def __init__(
        self, config: BrokerConfig, env: Env, fail: Callable[[Exception], None], log_dirs: LogDirs
    ) -> None:
        self.env = env
        self.config = config
        self.log_dirs = log_dirs
        check_metadata_dir_is_online(config, log_dirs)
        self._has_static_voters = bool(config.get_list("controller.quorum.voters")) or is_its_own_quorum(
            config, env.disk
        )
        self.voters = voter_ids(config) if self._has_static_voters else tuple(bootstrap_servers(config))
        self._names_voters = names_voters(env.disk, f"{config.metadata_log_dir}/{METADATA_PARTITION}")
        self.cluster_id = identify_directories(env, config, log_dirs, has_other_nodes=self.has_other_voters)
        check_voters_are_known(config, env.disk)
        self.addresses: list[tuple[str, int]] = []  # of the controller listeners
        self._connections: list[NodeConnections] = []
        self._peers: QuorumPeers | None = None
        self.quorum = self._new_quorum(fail)
        self.controller = self.new_controller_client()
        tasks = BackgroundTasks()
        self.services = NodeServices(
            config=config,
            env=env,
            cluster_id=self.cluster_id,
            metadata=self.quorum,
            controller=self.controller,
            quorum=self.quorum,
            tasks=tasks,
            scheduler=FairScheduler(env.clock),
            message_thread=SerialThread(env.threads, tasks),
        )
        self.metrics = self._new_metrics()
        self._dispatcher = Dispatcher(self.services, ListenerKind.CONTROLLER)
        self._server = self.new_server(self._dispatcher)

    def _new_metrics(self) -> "NodeMetrics | None":
        if not self.config.get_str("ottla.metrics.address"):
            return None
        from ottla.broker.metrics.node_metrics import NodeMetrics

        return NodeMetrics(self.services)

    def new_server(self, dispatch: Dispatch) -> Server:
        """A server whose requests are measured if this node serves metrics."""
        if self.metrics is None:
            return new_server(self.env, dispatch, self.config)
        measured = self.metrics.measured(dispatch)
        return new_server(self.env, measured, self.config, self.metrics.new_connection)

    @property
    def is_controller(self) -> bool:
        return "controller" in self.config.get_list("process.roles")

    @property
    def has_other_voters(self) -> bool:
        """Whether other nodes decide with this one, or instead of it, or may one day (KIP-853)."""
        return self.voters != (self.config.node_id,) or self._names_voters

    def new_controller_client(self) -> ActiveController:
        """Each client has connections of its own, on which no other request delays its requests."""
        connections = self.new_connections(self._controller_address) if self.has_other_voters else None
        timeout_s = self.config.get_int("controller.socket.timeout.ms") / 1000
        return ActiveController(
            self.config.node_id,
            self.cluster_id,
            self.quorum,
            connections,
            timeout_s=timeout_s,
            refusal=self._refusal,
        )

    def _refusal(self) -> KafkaError | None:
        return None if self._peers is None else self._peers.refusal(self.voters)

    def new_connections(self, address_of: Callable[[int], Address | None]) -> "NodeConnections":
        """Connections to other nodes, which are closed with this node."""
        from ottla.rpc.node_connections import NodeConnections  # with kio, which a single node loads later

        connections = NodeConnections(self.env.network, f"node-{self.config.node_id}", address_of)
        self._connections.append(connections)
        return connections

    async def start(self) -> None:
        """Opens the metadata log and takes part in the quorum. Raises KafkaError and OSError."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            if self.metrics is not None:
                await self.metrics.bind()
            listeners = self.config.controller_listeners if self.is_controller else []
            for listener in listeners:
                self.addresses.append(await self._server.bind(listener.host, listener.port, listener.name))
            self.quorum.own = self._own_voter()
            await self.quorum.start()
            if listeners:
                self._server.serve()
                self.services.tasks.start(keep_controller_registered(self.services, self._end_points()))
                if self.has_other_voters:
                    connections = self.new_connections(self._controller_address)
                    self.services.tasks.start(keep_voter_current(self.services, connections))
            undo.pop_all()

    async def close(self) -> None:
        """Hands the leadership over, if this node has it, and leaves the quorum."""
        if self.metrics is not None:
            await self.metrics.close()
        await self.services.tasks.close()
        await self.quorum.close()
        await self._server.close()
        await self._dispatcher.close()
        for connections in self._connections:
            connections.close()

    def _end_points(self) -> tuple[Endpoint, ...]:
        ports = [port for _, port in self.addresses]
        advertised = self.config.advertised_listeners
        return advertised_end_points(self.config.controller_listeners, advertised, ports, self.env.network)

    def _controller_address(self, node_id: int) -> Address | None:
        if not self.quorum.is_started:
            return parse_voters(self.config.get_list("controller.quorum.voters")).get(node_id)
        if node_id < 0:
            return bootstrap_servers(self.config).get(node_id)
        found = voter_endpoint(self.services, node_id)
        return None if found is None else Address(found.host, found.port)

    def _new_quorum(self, fail: Callable[[Exception], None]) -> Quorum:
        config = self.config
        learned: dict[int, VoterEndpoint] = {}
        if self.has_other_voters:
            from ottla.broker.quorum.peers import PeerSettings, QuorumPeers

            self._peers = QuorumPeers(
                self.new_connections(self._controller_address),
                self.cluster_id,
                PeerSettings.from_config(config),
                self._own_voter_endpoints(),
                learned,
                controller_listener_name(config),
            )
        quorum = Quorum(
            self.env,
            config.metadata_log_dir,
            node_id=config.node_id,
            controller=controller_settings(config),
            settings=QuorumSettings.from_config(config),
            on_failure=fail,
            partitions=self.log_dirs.partitions if self.is_controller else (),
            voters=self.voters,
            raft=raft_settings(config),
            peers=self._peers,
            has_fixed_voters=self._has_static_voters and not self._has_found_voters,
        )
        quorum.learned = learned
        return quorum

    @property
    def _has_found_voters(self) -> bool:
        """Whether this is a broker that knew some controllers only, and has asked them who votes."""
        return not self.is_controller and bool(self.config.get_list("controller.quorum.bootstrap.servers"))

    def _own_voter(self) -> Voter:
        """This node as a voter. Only a controller has endpoints."""
        meta = read_meta_properties(self.env.disk, self.config.metadata_log_dir)
        assert meta is not None, "the directory was identified"
        endpoints = tuple(
            VoterEndpoint(found.name, found.host, found.port)
            for found in (self._end_points() if self.is_controller and self.addresses else ())
        )
        if self._peers is not None:
            self._peers.set_endpoints(endpoints)
        return Voter(self.config.node_id, meta.directory_id, endpoints, SUPPORTED_FEATURES[KRAFT_VERSION])

    def _own_voter_endpoints(self) -> tuple[VoterEndpoint, ...]:
        return tuple(
            VoterEndpoint(listener.name, listener.host, listener.port)
            for listener in (self.config.controller_listeners if self.is_controller else ())
        )


class ControllerNode:
    """A node that only takes part in the quorum: process.roles=controller."""

    def __init__(self, node: QuorumNode, failed: "asyncio.Future[Exception]", *, owns_env: bool) -> None:
        self.failed = failed
        self._node = node
        self._owns_env = owns_env

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        env: Env | None = None,
        failed: "asyncio.Future[Exception] | None" = None,
    ) -> "ControllerNode":
        """Raises ConfigError, UnusableDirectoryError, KafkaError, OSError."""
        if unsupported := unsupported_errors(config):
            raise ConfigError(unsupported)
        failed = failed or asyncio.get_running_loop().create_future()
        owns_env = env is None
        env = env or real_env()
        async with AsyncExitStack() as undo:
            if owns_env:
                undo.callback(env.threads.close)
            log_dirs = LogDirs(env.disk, config.log_dirs)
            undo.callback(log_dirs.release)
            node = QuorumNode(config, env, partial(set_failure, failed), log_dirs)
            await node.start()
            if node.metrics is not None:
                node.metrics.serve()
            undo.pop_all()
        logger.info("controller %d of cluster %s takes part in the quorum", config.node_id, node.cluster_id)
        return cls(node, failed, owns_env=owns_env)

    @property
    def address(self) -> tuple[str, int]:
        return self._node.addresses[0]

    @property
    def metrics(self) -> "NodeMetrics | None":
        return self._node.metrics

    @property
    def env(self) -> Env:
        return self._node.env

    async def stop(self) -> None:
        node = self._node
        await node.close()
        await node.env.threads.run(lambda: node.log_dirs.close(-1, {}))
        if self._owns_env:
            node.env.threads.close()
        logger.info("controller %d has stopped", node.config.node_id)
