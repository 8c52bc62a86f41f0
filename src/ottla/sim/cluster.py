"""A simulated cluster: real nodes on hosts `node-1`, `node-2`..., each with its own disk and process.

A node is started in the background, because it may have to wait for a majority of the controllers. It is started again
if it could not join the cluster in time, as a supervisor would do.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ottla.broker.formatter import format_directories, new_cluster_id
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.node import Broker
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum_node import ControllerNode
from ottla.core.controller.image import MetadataImage
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import KafkaError
from ottla.sim.disk import SimDisk
from ottla.sim.env import ProcessKilled, SimProcess, World
from ottla.sim.history import Violation

PORT, CONTROLLER_PORT = 9092, 9093
FIRST_CONTROLLER_ID = 101
RACKS = 3
SESSION_S = 9.0
LAG_S = 6.0
_RESTART_PAUSE_S = 1.0
_READY_S = 60.0
_POLL_S = 0.1
_CONFIG = {
    "log.dirs": "/data",
    # Also of controllers, which make it the default of the cluster (KIP-966).
    "min.insync.replicas": "2",
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "1000",
    "initial.broker.registration.timeout.ms": "30000",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "800",
    "controller.quorum.election.backoff.max.ms": "500",
    # A simulated disk has no sparse files: each index takes its whole size, for each segment that is open.
    "log.index.size.max.bytes": "4096",
    "internal.metadata.log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    # An idle cluster should not take most of the time of a simulation.
    "metadata.max.idle.interval.ms": "3000",
}
_BROKER_CONFIG = {
    "inter.broker.listener.name": "PLAINTEXT",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "replica.socket.timeout.ms": "5000",
    "replica.fetch.backoff.ms": "200",
    "replica.fetch.wait.max.ms": "1500",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.enable": "false",  # the checkers compare the logs of the internal topics byte by byte
}


class ClusterNode:
    """One node: a broker, a controller, or both."""

    def __init__(self, world: World, node_id: int, config: Mapping[str, str], cluster_id: str) -> None:
        self.node_id = node_id
        self.host = f"node-{node_id}"
        self.disk: SimDisk = world.new_disk()
        self.running: Broker | ControllerNode | None = None  # while it takes part in the cluster
        self.is_paused = False
        self.has_disk_fault = False  # so it may stop by itself, and log errors
        self.starts = 0
        self.failure: Exception | None = None
        self.has_failed = asyncio.Event()
        self._world = world
        self._config = dict(config)
        self._cluster_id = cluster_id
        self._process: SimProcess | None = None
        self._main: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def is_broker(self) -> bool:
        return "broker" in self._config["process.roles"]

    @property
    def is_up(self) -> bool:
        """Whether there is a process; it may still start."""
        return self._process is not None

    @property
    def broker(self) -> Broker | None:
        """While it serves."""
        return self.running if isinstance(self.running, Broker) else None

    @property
    def quorum(self) -> Quorum | None:
        if self.running is None:
            return None
        return self.running._node.quorum

    @property
    def is_active_controller(self) -> bool:
        return self.quorum is not None and self.quorum.is_active

    def start(self) -> None:
        assert not self.is_up, f"{self.host} is up already"
        self._note("start")
        self.starts += 1
        self._stop = asyncio.Event()
        self.has_failed = asyncio.Event()
        self._process = self._world.process(self.host, self.disk)
        self._main = asyncio.create_task(self._process.run(self._serve))

    async def stop(self) -> None:
        """A controlled shutdown, as after SIGTERM. A node that still starts is killed."""
        if self.running is None:
            await self.kill()
            return
        self._note("stop")
        self._stop.set()
        assert self._main is not None
        await self._main
        assert self._process is not None
        await self._process.kill()
        self._ended()

    async def kill(self) -> None:
        assert self._process is not None
        self._note("kill")
        await self._process.kill()
        await self._end()

    async def lose_power(self) -> None:
        assert self._process is not None
        self._note("power loss")
        await self._process.lose_power()
        await self._end()

    def pause(self) -> None:
        assert self._process is not None
        self.is_paused = True
        self._process.pause()

    def resume(self) -> None:
        assert self._process is not None
        self.is_paused = False
        self._process.resume()

    async def _end(self) -> None:
        assert self._main is not None
        with suppress(ProcessKilled, asyncio.CancelledError):
            await self._main
        self._ended()

    def _ended(self) -> None:
        self.running, self._process, self.is_paused = None, None, False
        self.disk = self.disk.reopen()

    def _note(self, what: str) -> None:
        self._world.trace.note(f"{self.host} {what}")

    async def _serve(self, env: Env) -> None:
        config = BrokerConfig(self._config)
        if not self.has_disk_fault:  # otherwise an earlier start has formatted the directories
            format_directories(env, config, cluster_id=self._cluster_id, ignore_formatted=True)
        node = await self._join(env, config)
        self._note("has joined")
        self.running = node
        node.failed.add_done_callback(lambda failed: self._stop.set())
        with self.disk.watched_loop():
            await self._stop.wait()
        if node.failed.done():
            self.has_failed.set()
            if not self.has_disk_fault:
                self.failure = node.failed.result()
            return
        await node.stop()
        self.running = None

    async def _join(self, env: Env, config: BrokerConfig) -> Broker | ControllerNode:
        while True:
            try:
                return await (Broker if self.is_broker else ControllerNode).start(config, env)
            except (KafkaError, OSError) as error:
                self._note(f"could not join: {error}")
            await asyncio.sleep(_RESTART_PAUSE_S)


class Cluster:
    """`controllers` are separate nodes with the ids 101, 102...; with 0 of them, every broker is a controller too."""

    def __init__(
        self, world: World, brokers: int = 3, controllers: int = 0, config: Mapping[str, str] | None = None
    ) -> None:
        self.world = world
        cluster_id = new_cluster_id(world.process("formatter", world.new_disk()).env)
        broker_ids = range(1, brokers + 1)
        controller_ids = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers) or broker_ids
        voters = ",".join(f"{each}@node-{each}:{CONTROLLER_PORT}" for each in controller_ids)
        self.nodes: dict[int, ClusterNode] = {}
        for node_id in sorted({*broker_ids, *controller_ids}):
            own = _node_config(node_id, is_broker=node_id in broker_ids, is_voter=node_id in controller_ids)
            settings = {**own, "controller.quorum.voters": voters, **(config or {})}
            self.nodes[node_id] = ClusterNode(world, node_id, settings, cluster_id)

    @property
    def brokers(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(node.host, PORT) for node in self.brokers]

    async def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        await self.ready()

    async def ready(self, within_s: float = _READY_S) -> None:
        """Returns when all nodes take part in the cluster. Raises Violation if they do not in time."""
        try:
            async with asyncio.timeout(within_s):
                while not all(node.running is not None for node in self.nodes.values()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            missing = [node.host for node in self.nodes.values() if node.running is None]
            raise Violation(
                f"progress: {missing} have not joined the cluster within {within_s:.0f} s"
            ) from None

    async def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.stop()

    async def kill(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.kill()

    # The state of the nodes

    def active_controllers(self) -> list[ClusterNode]:
        """More than one while a deposed one does not know that it is."""
        return [node for node in self.nodes.values() if node.is_active_controller]

    def image(self) -> MetadataImage:
        """The newest image of any node."""
        images = [node.quorum.image for node in self.nodes.values() if node.quorum is not None]
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def replicas(self) -> Iterator[tuple[ClusterNode, HostedPartition]]:
        """All replicas on nodes that serve."""
        for node in self.brokers:
            if node.broker is not None:
                for hosted in node.broker.services.partitions:
                    yield node, hosted

    def replicas_of(self, topic: str, partition: int) -> dict[int, HostedPartition]:
        """By node id."""
        return {
            node.node_id: hosted
            for node, hosted in self.replicas()
            if hosted.topic_partition == (topic, partition)
        }

    def describe(self) -> str:
        """All partitions, as the newest metadata and as their replicas say, for a person to read."""
        lines = [f"active controllers {[node.node_id for node in self.active_controllers()]}"]
        for topic in self.image().topics.values():
            for index, partition in topic.partitions.items():
                lines.append(
                    f"{topic.name}-{index}: leader {partition.leader} epoch {partition.leader_epoch} "
                    f"isr {partition.isr} elr {partition.eligible_leader_replicas} replicas {partition.replicas}"
                )
                for node_id, hosted in self.replicas_of(topic.name, index).items():
                    role, log = hosted.role, hosted.log
                    lines.append(
                        f"    node {node_id}: {type(role).__name__} epoch {role.leader_epoch} high watermark "
                        f"{role.high_watermark} last stable {role.last_stable_offset} end {log.log_end_offset} "
                        f"epochs {log.epochs.entries()}"
                    )
        return "\n".join(lines)

    def leader_of(self, topic: str, partition: int) -> int:
        """As the newest metadata says; -1 if there is none."""
        found = self.image().topics.get(topic)
        return -1 if found is None else found.partitions[partition].leader

    def isr_of(self, topic: str, partition: int) -> tuple[int, ...]:
        found = self.image().topics.get(topic)
        return () if found is None else found.partitions[partition].isr


def _node_config(node_id: int, *, is_broker: bool, is_voter: bool) -> dict[str, str]:
    roles, listeners = [], []
    if is_broker:
        roles.append("broker")
        listeners.append(f"PLAINTEXT://node-{node_id}:{PORT}")
    if is_voter:
        roles.append("controller")
        listeners.append(f"CONTROLLER://node-{node_id}:{CONTROLLER_PORT}")
    return {
        **_CONFIG,
        **(_BROKER_CONFIG if is_broker else {}),
        **({"broker.rack": f"rack-{node_id % RACKS}"} if is_broker else {}),
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
        "listeners": ",".join(listeners),
    }
