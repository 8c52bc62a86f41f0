"""Nodes of a quorum, each in a simulated process of its own, that talk over the simulated network."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.active_controller import ActiveController
from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.dispatch import Dispatcher
from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.quorum.peers import PeerSettings, QuorumPeers
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.voters import controller_listener_name, voter_ids
from ottla.broker.serial_thread import SerialThread
from ottla.broker.server_settings import new_server
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import BrokerHeartbeat, CreateTopics, NewTopic, RegisterBroker
from ottla.core.controller.settings import ControllerSettings, supported_feature_ranges
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ListenerKind
from ottla.rpc.addresses import Address
from ottla.rpc.node_connections import NodeConnections
from ottla.sim.client import SimClient
from ottla.sim.env import SimProcess, World, simulate

LOG_DIR = "/data"
VOTERS = (1, 2, 3)
PORT = 9093
CLUSTER_ID = "cluster-of-the-test"
# No broker sends heartbeats here.
CONTROLLER = ControllerSettings(
    validate_configs=lambda resource, configs, altered: None,
    session_timeout_ms=1 << 40,
    activation_grace_ms=1 << 40,
)


def config_of(node_id: int, **more: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "node.id": str(node_id),
            "process.roles": "broker,controller" if node_id in VOTERS else "broker",
            "listeners": f"PLAINTEXT://node{node_id}:9092,CONTROLLER://node{node_id}:{PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{voter}@node{voter}:{PORT}" for voter in VOTERS),
            "log.dirs": LOG_DIR,
        }
        | {name.replace("_", "."): value for name, value in more.items()}
    )


class NetworkCluster:
    def __init__(self, world: World, settings: QuorumSettings) -> None:
        self.world = world
        self.settings = settings
        self.disks = {node_id: world.new_disk(LOG_DIR) for node_id in (*VOTERS, 4)}
        self.processes: dict[int, SimProcess] = {}
        self.quorums: dict[int, Quorum] = {}
        self.services: dict[int, NodeServices] = {}
        self.addresses = {node_id: Address(f"node{node_id}", PORT) for node_id in (*VOTERS, 4)}
        self.failures: list[Exception] = []
        self._ports = PORT

    async def start(
        self, node_id: int, cluster_id: str = CLUSTER_ID, *, port: int = PORT, **config: str
    ) -> None:
        """Node 4 is an observer."""
        self.addresses[node_id] = Address(f"node{node_id}", port)
        process = self.world.process(f"node{node_id}", self.disks[node_id])
        self.processes[node_id] = process
        await process.run(lambda env: self._serve(env, config_of(node_id, **config), cluster_id))

    async def _serve(self, env: Env, config: BrokerConfig, cluster_id: str) -> None:
        node_id = config.node_id
        address = self.addresses[node_id]
        peers = QuorumPeers(
            NodeConnections(env.network, f"raft-client-{node_id}", self.addresses.get),
            cluster_id,
            PeerSettings.from_config(config),
            [VoterEndpoint(controller_listener_name(config), *address)],
        )
        quorum = Quorum(
            env,
            LOG_DIR,
            node_id=node_id,
            voters=voter_ids(config),
            controller=CONTROLLER,
            settings=self.settings,
            on_failure=self.failures.append,
            peers=peers,
        )
        await quorum.start()
        tasks = BackgroundTasks()
        services = NodeServices(
            config=config,
            env=env,
            cluster_id=cluster_id,
            metadata=quorum,
            controller=ActiveController(node_id, cluster_id, quorum),
            quorum=quorum,
            tasks=tasks,
            scheduler=FairScheduler(env.clock),
            message_thread=SerialThread(env.threads, tasks),
        )
        server = new_server(env, Dispatcher(services, ListenerKind.CONTROLLER), config)
        await server.listen(*address)
        self.quorums[node_id], self.services[node_id] = quorum, services

    async def kill(self, node_id: int, *, silent: bool = False) -> None:
        """kill -9, or a power loss that nobody notices."""
        del self.quorums[node_id]
        process = self.processes.pop(node_id)
        await (process.lose_power() if silent else process.kill())
        self.disks[node_id] = self.disks[node_id].reopen()

    def isolate(self, node_id: int) -> None:
        for other in VOTERS:
            if other != node_id:
                self.world.network.partition(f"node{node_id}", f"node{other}")

    def client(self, node_id: int) -> SimClient:
        return SimClient(self.world.network.host("client"), self.addresses[node_id], "client")

    async def submit(self, command: Any) -> Any:
        """Asks every node until one of them is the active controller and responds."""
        while True:
            for quorum in list(self.quorums.values()):
                try:
                    async with asyncio.timeout(5):
                        return await quorum.submit(command)
                except (KafkaError, TimeoutError) as error:
                    if isinstance(error, KafkaError) and error.code is not ErrorCode.not_controller:
                        raise
            await asyncio.sleep(0.1)

    async def create(self, name: str) -> None:
        topic_id = uuid.UUID(int=self.world.random.getrandbits(120) + 1)
        (result,) = await self.submit(CreateTopics((NewTopic(name, topic_id, 2, 1),)))
        # The first attempt may have been committed without a response.
        assert result.error.code in (ErrorCode.none, ErrorCode.topic_already_exists), result

    async def register_broker(self) -> None:
        register = RegisterBroker(
            1, uuid.UUID(int=7), (), supported_feature_ranges(), (uuid.UUID(int=9 << 64),)
        )
        epoch = await self.submit(register)
        await self.submit(BrokerHeartbeat(1, epoch, epoch))

    async def leader(self) -> int:
        """Waits until a node leads and has committed an entry of its epoch."""
        while True:
            leading = [node for node, quorum in self.quorums.items() if quorum.machine is not None]
            if leading:
                return leading[-1]
            await asyncio.sleep(0.1)

    async def follower(self) -> int:
        leader = await self.leader()
        return next(node for node in VOTERS if node != leader)

    async def agree(self, *nodes: int) -> None:
        """Waits until these nodes, or all, have applied the same records."""
        for attempt in range(300):
            images = [self.quorums[node].image for node in nodes or tuple(self.quorums)]
            if len({image.offset for image in images}) == 1:
                assert all(image == images[0] for image in images)
                return
            assert attempt < 299, f"offsets {[image.offset for image in images]}"
            await asyncio.sleep(0.1)


def in_network_cluster(
    test: Callable[[NetworkCluster], Awaitable[None]], seed: int = 1, settings: QuorumSettings | None = None
) -> None:
    """Runs a test with three voters that have elected a leader."""

    async def main(world: World) -> None:
        cluster = NetworkCluster(world, settings or QuorumSettings(no_op_interval_ms=0))
        for node_id in VOTERS:
            await cluster.start(node_id)
        await cluster.register_broker()
        async with asyncio.timeout(3600):
            await test(cluster)
        assert not cluster.failures

    simulate(main, seed)
