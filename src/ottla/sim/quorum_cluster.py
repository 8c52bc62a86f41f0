"""A simulated quorum: voters and observers, each a real `Quorum` on its own host and disk, and its faults."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar
from uuid import UUID

from ottla.broker.quorum.bootstrap import write_bootstrap_snapshot
from ottla.broker.quorum.metadata_log import METADATA_PARTITION
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.settings import ControllerSettings
from ottla.core.raft.membership import add_voter, remove_voter, upgrade_kraft_version
from ottla.core.raft.messages import Request, Response, VoteRequest, VoteResponse
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_change import VoterChange
from ottla.core.raft.voter_set import Voter, VoterEndpoint, VoterSet
from ottla.env import Env
from ottla.sim.disk import SimDisk
from ottla.sim.env import ProcessKilled, SimProcess, World
from ottla.sim.quorum_checkers import NodeView, QuorumCheckers
from ottla.sim.quorum_log_view import LogView
from ottla.sim.quorum_transport import QuorumTransport, SimPeers

# No broker sends heartbeats here.
CONTROLLER = ControllerSettings(
    validate_configs=lambda resource, configs, altered: None,
    session_timeout_ms=1 << 40,
    activation_grace_ms=1 << 40,
)
T = TypeVar("T")


def changing_voter(node_id: int) -> Voter:
    endpoint = VoterEndpoint("CONTROLLER", QuorumTransport.host(node_id), 9093)
    return Voter(node_id, UUID(int=node_id), (endpoint,), (0, 1))


class QuorumNode:
    """One node of the cluster. Its disk and its clock outlive its process."""

    def __init__(self, cluster: "QuorumCluster", node_id: int) -> None:
        self.node_id = node_id
        self.host = QuorumTransport.host(node_id)
        self.log_dir = f"/{self.host}"
        self.disk: SimDisk = cluster.world.new_disk(self.log_dir)
        self.has_disk_fault = False
        self.is_paused = False
        self.publish_s = 0.0  # how long its broker takes to apply an image
        self._cluster = cluster
        self._world = cluster.world
        self._quorum: Quorum | None = None
        self._process: SimProcess
        self._context = Context()
        self._view: LogView
        self._seen: tuple[int, bool, int, int, int] | None = None
        if cluster.has_changing_voters and not cluster.begins_static and node_id in cluster.voters:
            first = VoterSet.of(map(changing_voter, cluster.voters))
            write_bootstrap_snapshot(self.disk, self.log_dir, first, now_ms=0)

    @property
    def quorum(self) -> Quorum | None:
        """None while the process is dead or starts."""
        return self._quorum if self.disk.is_alive else None

    @property
    def is_active(self) -> bool:
        """Whether this node takes itself for the active controller."""
        return self.quorum is not None and self.quorum.machine is not None

    async def start(self) -> None:
        self._world.trace.note(f"{self.host} start")
        self._process = self._world.process(self.host, self.disk)
        self.disk.on_power_loss = self._on_power_loss
        try:
            await self._process.run(self._start)
        except ProcessKilled:
            pass
        except Exception as error:
            self._cluster.checkers.node_failed(self.node_id, error, has_disk_fault=self.has_disk_fault)

    async def _start(self, env: Env) -> None:
        cluster, disk = self._cluster, self.disk
        quorum = Quorum(
            env,
            self.log_dir,
            node_id=self.node_id,
            voters=cluster.voters,
            controller=CONTROLLER,
            settings=cluster.settings,
            raft=cluster.raft,
            on_failure=lambda error: self._on_failure(disk, error),
            peers=SimPeers(cluster.transport, self.node_id),
            own=changing_voter(self.node_id) if cluster.has_changing_voters else None,
            has_fixed_voters=cluster.begins_static or not cluster.has_changing_voters,
        )
        self._view, self._seen = LogView(self.disk, f"{self.log_dir}/{METADATA_PARTITION}"), None
        self._context = copy_context()
        quorum.subscribe(lambda old, new: self._on_image(quorum, old, new))
        await quorum.start()
        self._quorum = quorum
        # Among several voters the driver starts with the next turn, so the checkers see all steps.
        stepped, hard_state = quorum.driver._on_step, quorum.driver.node._durable_state

        def on_step() -> None:
            nonlocal hard_state
            stepped()
            if disk.is_alive:
                self._observe(quorum)
            if hard_state != quorum.driver.node._durable_state:
                hard_state = quorum.driver.node._durable_state
                cluster.checkers.observe_hard_state(self.node_id, env.clock.monotonic_ms())

        quorum.driver._on_step = on_step
        cluster.transport.serve(self.node_id, quorum.driver, self._context)

    async def submit(self, command: Any) -> Any:
        return await self._run(lambda quorum: quorum.submit(command))

    async def change_voter(self, node_id: int, timeout_ms: int) -> VoterChange:
        """Adds a voter, or removes the one with this id (KIP-853). At kraft.version 0, raises that first."""

        async def change(quorum: Quorum) -> VoterChange:
            node, voter = quorum.driver.node, changing_voter(node_id)
            now_ms = self._world.clock_of(self.host).monotonic_ms()
            if self._cluster.begins_static and not node.history.allows_changes:
                voters = VoterSet.of(map(changing_voter, node.voters))
                began = upgrade_kraft_version(node, voters, now_ms, timeout_ms=timeout_ms)
            elif node_id in node.voters:
                began = remove_voter(node, voter.key, now_ms, timeout_ms=timeout_ms)
            else:
                began = add_voter(node, voter, now_ms, timeout_ms=timeout_ms)
            return await quorum.driver.change_voters(began)

        return await self._run(change)

    async def _run(self, work_on: Callable[[Quorum], Coroutine[Any, Any, T]]) -> T:
        """In the process of the node: it waits while that is paused, and is cancelled if that ends."""
        quorum = self.quorum
        if quorum is None:
            raise ConnectionError(f"node {self.node_id} is dead")
        loop = asyncio.get_running_loop()
        work = loop.create_task(work_on(quorum), context=self._context.copy())
        # A client that gives up does not look at the response.
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([work])
        if work.cancelled():
            raise ConnectionResetError(f"node {self.node_id} has died")
        return work.result()

    # Faults

    def replay_slowly(self, pause_s: float) -> None:
        """From now on pauses after each record of the log that it replays. A restart ends it."""
        if self.quorum is not None:
            loader = self.quorum.loader
            loader.records_per_turn, loader.pause_s, self.quorum._log.parsed_bytes = 1, pause_s, 1

    async def stop(self) -> None:
        """A clean shutdown."""
        self._world.trace.note(f"{self.host} stop")
        if self.quorum is not None:
            quorum = self.quorum
            self._cluster.transport.end(self.node_id, has_power=True)
            await self._process.run(lambda env: quorum.close())
        await self._process.kill()
        self._end(has_power=True)

    async def kill(self) -> None:
        self._world.trace.note(f"{self.host} kill")
        await self._process.kill()
        self._end(has_power=True)

    async def lose_power(self) -> None:
        self._world.trace.note(f"{self.host} power loss")
        await self._process.lose_power()
        self._end(has_power=False)

    def pause(self) -> None:
        self._world.trace.note(f"{self.host} pause")
        self.is_paused = True
        self._process.pause()

    def resume(self) -> None:
        self._world.trace.note(f"{self.host} resume")
        self.is_paused = False
        self._process.resume()

    def _on_power_loss(self) -> None:
        self._process.on_power_loss()
        self._cluster.transport.end(self.node_id, has_power=False)

    def _end(self, *, has_power: bool) -> None:
        self._cluster.transport.end(self.node_id, has_power=has_power)
        self._quorum = None
        self.is_paused = self.has_disk_fault = False
        self.disk = self.disk.reopen()

    # For the checkers

    def _on_failure(self, disk: SimDisk, error: Exception) -> None:
        if not disk.is_alive:
            return  # of the process that was killed
        self._world.trace.note(f"{self.host} failed: {error}")
        self._cluster.checkers.node_failed(self.node_id, error, has_disk_fault=self.has_disk_fault)

    def _on_image(self, quorum: Quorum, old: MetadataImage, new: MetadataImage) -> Awaitable[None] | None:
        self._world.trace.note(f"{self.host} publishes offset {new.offset}")
        high_watermark = quorum.driver.node.high_watermark
        self._cluster.checkers.observe_image(self.node_id, old, new, high_watermark)
        return asyncio.sleep(self.publish_s) if self.publish_s else None

    def _observe(self, quorum: Quorum) -> None:
        node = quorum.driver.node
        durable_epoch = node._durable_state.epoch
        seen = (node.epoch, node.is_leader, node.high_watermark, node.log.end_offset, durable_epoch)
        if seen == self._seen:
            return
        self._seen = seen
        self._world.trace.note(f"{self.host} epoch, leads, high watermark, end, durable epoch: {seen}")
        view = NodeView(self.node_id, *seen, self._view.batches(node.log.end_offset))
        self._cluster.checkers.observe_step(view, node)


class QuorumCluster:
    def __init__(
        self,
        world: World,
        voters: Sequence[int],
        observers: Sequence[int] = (),
        *,
        settings: QuorumSettings | None = None,
        raft: RaftSettings | None = None,
        has_changing_voters: bool = False,
        begins_static: bool = False,
    ) -> None:
        """`has_changing_voters`: `voters` are the first ones, in the bootstrap snapshots of their disks (KIP-853).
        `begins_static`: they are static ones until kraft.version is raised.
        """
        self.world = world
        self.has_changing_voters = has_changing_voters
        self.begins_static = begins_static
        self.voters = tuple(voters)
        self.settings = settings or QuorumSettings()
        self.raft = raft or RaftSettings()
        self.checkers = QuorumCheckers()
        self.transport = QuorumTransport(world.network, self._observe_message)
        self.voted = asyncio.Event()
        self.last_voter = self.voters[0]
        self.nodes = {node_id: QuorumNode(self, node_id) for node_id in (*voters, *observers)}

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    def active_nodes(self) -> list[QuorumNode]:
        """The nodes that take themselves for the active controller. Some may be deposed without knowing it."""
        return [node for node in self.nodes.values() if node.is_active]

    def _observe_message(self, source: int, target: int, request: Request, response: Response | None) -> None:
        now_ms = self.world.clock_of(self.nodes[source].host).monotonic_ms()
        self.checkers.observe_message(source, target, request, response, now_ms)
        is_vote = isinstance(request, VoteRequest) and not request.is_pre_vote
        if is_vote and isinstance(response, VoteResponse) and response.is_granted:
            self.world.trace.note(f"node{target} votes for {source} in epoch {response.epoch}")
            self.last_voter = target
            self.voted.set()
