"""Drives the raft node: writes what it asks for, sends its requests, and gives it the time and the requests of others.

One task does all steps: it takes what the node has ready, makes it durable, sends the requests, and only then tells the
node that it is done. Everything that is proposed or received while a step writes is part of the next step, so many
proposals share a flush. A response to another node waits for the step that makes it true (`core.raft` has the rules).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.quorum_state import write_quorum_state
from ottla.core.raft.errors import DivergedBelowCommit, NotLeader
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Outbound,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import Entry, HardState, Ready
from ottla.core.raft.voter_change import VoterChange
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.disk_errors import RETRY_S, is_disk_failure, out_of_resources_message

logger = logging.getLogger("ottla.quorum")

SNAPSHOT_CHUNK_BYTES = 1 << 20
_SLEEP_MAX_S = 24 * 3600


class Peers(Protocol):
    """The way to the other nodes of the quorum."""

    async def call(self, node_id: int, request: Request) -> Response:
        """Raises OSError, also after a timeout, and KafkaError for a response that cannot be read."""
        ...

    async def close(self) -> None: ...


class NoPeers:
    """For a node that is the only voter."""

    async def call(self, node_id: int, request: Request) -> Response:
        raise ConnectionError(f"node {node_id} is not a peer")

    async def close(self) -> None:
        pass


class QuorumPosition(NamedTuple):
    """What a fetch waits for a change of."""

    epoch: int
    is_leader: bool
    log_end_offset: int
    high_watermark: int


class RaftDriver:
    """`on_step` is called after each step: role, leader and high watermark may have changed.

    `on_failure` is called once, if the log cannot be written, or contradicts that of the leader.
    """

    def __init__(
        self,
        env: Env,
        node: RaftNode,
        log: MetadataLog,
        peers: Peers,
        *,
        on_step: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.node = node
        self._env = env
        self._log = log
        self._peers = peers
        self._on_step = on_step
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._step_ended: list[asyncio.Future[None]] = []
        self._changed: list[asyncio.Future[None]] = []
        self._released_position: QuorumPosition | None = None
        self._write_began_ms: int | None = None  # of the current step
        self._voter_changes: list[tuple[VoterChange, asyncio.Future[None]]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._failure: DivergedBelowCommit | None = None
        self._has_static_state = self._has_static_voters_on_disk  # the quorum-state of kraft.version 0
        self._task: asyncio.Task[None] | None = None

    # Starting and stopping

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="raft")

    async def close(self) -> None:
        """Ends after the current step."""
        self._is_stopped = True
        self._wake.set()
        if self._task is not None:
            await self._task
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._peers.close()

    # Use by this node

    def propose(self, values: Sequence[bytes], epoch: int) -> Entry:
        """Appends records that are committed together. Raises NotLeader, also if this node leads another epoch: the
        records were decided on what the log had in `epoch`.
        """
        self.check_leads(epoch)
        entry = self.node.propose(values)
        self._wake.set()
        return entry

    def check_leads(self, epoch: int) -> None:
        """Raises NotLeader if this node does not lead `epoch`."""
        node = self.node
        if not node.is_leader:
            raise NotLeader(f"node {node.node_id} does not lead the quorum in epoch {node.epoch}")
        if node.epoch != epoch:
            raise NotLeader(f"node {node.node_id} leads epoch {node.epoch}, not {epoch}")

    def resign(self) -> None:
        self.node.resign(self._env.clock.monotonic_ms())
        self._wake.set()

    async def hand_over(self, timeout_s: float) -> None:
        """Resigns, if this node leads, and asks the other voters to elect a leader before their timeouts."""
        if not self.node.is_leader or self.node.is_only_voter or self._is_stopped:
            return
        self.resign()
        try:
            await self.step_end()
        except OSError:
            return  # the log has failed: the others will notice
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=timeout_s)

    async def change_voters(self, change: VoterChange) -> VoterChange:
        """Returns when a change that the node has begun has ended. Raises OSError."""
        await self.step_end()
        if change.error is None:
            ended = asyncio.get_running_loop().create_future()
            self._voter_changes.append((change, ended))
            self._wake.set()
            await ended
        return change

    def _release_ended_changes(self) -> None:
        for change, ended in self._voter_changes:
            if change.error is not None:
                _release([ended], None)
        self._voter_changes = [waiting for waiting in self._voter_changes if waiting[0].error is None]

    async def step_end(self) -> None:
        """Returns when everything that the node has decided so far is durable. Raises OSError if that failed."""
        self._check_running()
        ended = asyncio.get_running_loop().create_future()
        self._step_ended.append(ended)
        self._wake.set()
        await ended

    def _check_running(self) -> None:
        if self._is_stopped:
            raise ConnectionError("the quorum has stopped")

    # Requests of other nodes

    async def vote(self, request: VoteRequest) -> VoteResponse:
        response = self.node.on_vote(request, self._env.clock.monotonic_ms())
        await self.step_end()
        return response

    async def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> EpochResponse:
        response = self.node.on_begin_quorum_epoch(request, self._env.clock.monotonic_ms())
        await self.step_end()
        return response

    async def end_quorum_epoch(self, request: EndQuorumEpochRequest) -> EpochResponse:
        response = self.node.on_end_quorum_epoch(request, self._env.clock.monotonic_ms())
        await self.step_end()
        return response

    async def fetch(self, request: FetchRequest, *, max_bytes: int, max_wait_ms: int) -> FetchResponse:
        """Waits up to `max_wait_ms` for something to send: batches, a higher high watermark, another leader."""
        await self._check_disk()
        decision = self.node.on_fetch(request, self._env.clock.monotonic_ms())
        self._wake.set()  # the high watermark may have moved
        if not decision.reads_log:
            await self.step_end()
            return decision.response
        response = decision.response._replace(batches=self._log.read_raw(request.offset, max_bytes))
        if response.batches or decision.has_news or max_wait_ms <= 0:
            return response
        before = self._position()
        await self._change_since(before, max_wait_ms)
        self._check_running()
        now = self._position()
        if not now.is_leader or now.epoch != before.epoch:
            # The fetch was counted when it came; here it only gets the error that names the new leader.
            decision = self.node.on_fetch(request, self._env.clock.monotonic_ms())
            await self.step_end()
            return decision.response
        return FetchResponse(
            now.epoch,
            self.node.leader_id,
            max(response.high_watermark, now.high_watermark),
            self._log.read_raw(request.offset, max_bytes),
        )

    async def fetch_snapshot(self, request: FetchSnapshotRequest, *, max_bytes: int) -> FetchSnapshotResponse:
        await self._check_disk()
        response = self.node.on_fetch_snapshot(request, self._env.clock.monotonic_ms())
        self._wake.set()
        if response.error is not ErrorCode.none:
            await self.step_end()
            return response
        chunk_bytes = min(max_bytes, SNAPSHOT_CHUNK_BYTES)
        size, data = await self._env.threads.run(
            lambda: self._log.read_snapshot(request.snapshot, request.position, chunk_bytes)
        )
        if request.position < 0 or request.position >= size:
            return response._replace(error=ErrorCode.position_out_of_range)
        return response._replace(size=size, data=data)

    async def _check_disk(self) -> None:
        """A leader whose disk fails or hangs must not keep its followers: without responses they elect another one, as
        in Kafka (KIP-595), where one thread writes and responds. Raises ConnectionError if the log has failed.
        """
        self._check_running()
        began_ms, now_ms = self._write_began_ms, self._env.clock.monotonic_ms()
        if began_ms is not None and now_ms - began_ms >= self.node.settings.fetch_timeout_ms:
            await self.step_end()

    def _position(self) -> QuorumPosition:
        """The log ends at the last entry that is written: raft also counts those that are proposed."""
        node = self.node
        return QuorumPosition(node.epoch, node.is_leader, self._log.log_end_offset, node.high_watermark)

    def _release_changed(self) -> None:
        """Most steps change nothing that a fetch waits for."""
        position = self._position()
        if position != self._released_position:
            self._released_position = position
            _release(self._changed, None)

    async def _change_since(self, before: QuorumPosition, max_wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + max_wait_ms / 1000
        while self._position() == before and not self._is_stopped:
            remaining_s = deadline_s - loop.time()
            if remaining_s <= 0:
                return
            changed = loop.create_future()
            self._changed.append(changed)
            try:
                await asyncio.wait([changed], timeout=remaining_s)
            finally:
                if not changed.done():  # a quorum without changes would keep all of them
                    self._changed.remove(changed)

    # Steps

    async def _run(self) -> None:
        try:
            while not self._is_stopped:
                await self._step()
                await self._sleep()
        except Exception as error:
            self._is_stopped = True
            _release(self._step_ended, error)
            self._on_failure(error)
        finally:
            _release(self._step_ended, ConnectionError("the quorum has stopped"))
            _release(self._changed, None)
            for change, ended in self._voter_changes:
                change.end(ErrorCode.not_leader_or_follower, "the quorum has stopped")
                _release([ended], None)

    async def _step(self) -> None:
        """All steps until the node has nothing to do."""
        while True:
            if self._failure is not None:
                raise self._failure
            self._wake.clear()
            now_ms = self._env.clock.monotonic_ms()
            self.node.tick(now_ms)
            ended, self._step_ended = self._step_ended, []
            ready = self.node.ready(now_ms)
            if ready is not None:
                self._write_began_ms = now_ms
                try:
                    done = await self._write_and_retry(ready)
                except BaseException as error:
                    _release(ended, error)
                    raise
                finally:
                    self._write_began_ms = None
                for message in ready.messages:
                    self._send(message)
                self.node.advance(done)
                if done.chunk is None and ready.chunk is not None:
                    self.node.give_up_snapshot(self._env.clock.monotonic_ms())
            _release(ended, None)
            self._release_changed()
            self._release_ended_changes()
            self._on_step()
            if ready is None or self._is_stopped:
                return

    async def _sleep(self) -> None:
        """Until something is proposed or received, or the node's next timeout."""
        if self._wake.is_set() or self._is_stopped:
            return
        now_ms = self._env.clock.monotonic_ms()
        wait_s = (self.node.next_tick_ms() - now_ms) / 1000
        if wait_s > _SLEEP_MAX_S:  # the only voter has no timeouts
            await self._wake.wait()
        elif wait_s > 0:
            timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _write_and_retry(self, ready: Ready) -> Ready:
        """Raises OSError if the disk fails. While the process has no file descriptors left, it tries again."""
        while True:
            try:
                return await self._write(ready)
            except OSError as error:
                if is_disk_failure(error) or self._is_stopped:
                    raise
                where = f"writing the metadata log in {self._log.directory}"
                logger.warning("%s", out_of_resources_message(where, error))
                await asyncio.sleep(RETRY_S)

    async def _write(self, ready: Ready) -> Ready:
        """In the order that raft requires. May be called again after it has failed.

        Returns what was done: all of `ready`, but not the end of a snapshot that turns out to be damaged.
        """
        threads = self._env.threads
        if ready.hard_state is not None:
            await self._write_state(ready.hard_state)
        now_ms = self._env.clock.now_ms()
        if ready.truncate_to is not None:
            await self._log.truncate_to(ready.truncate_to, threads, now_ms)
        if ready.entries:
            self._log.append(ready.entries, now_ms)
            # The followers write them while the leader flushes: it counts its own log only up to the last flush.
            self._release_changed()
        work = self._log.prepare_flush()
        if work is not None:
            flush = work
            await threads.run(lambda: self._log.sync(flush))
            self._log.flushed(work)
        if self._has_static_state and not self._has_static_voters_on_disk:
            await self._write_state(ready.hard_state or self.node.durable_state)
        if ready.chunk is not None:
            try:
                membership = await self._log.write_chunk(ready.chunk, threads, now_ms)
            except KafkaError as error:  # another node has sent it: that must not stop this one
                logger.error("a snapshot from node %d is dropped: %s", self.node.leader_id, error)
                return ready._replace(chunk=None)
            return ready._replace(chunk=ready.chunk._replace(membership=membership))
        return ready

    @property
    def _has_static_voters_on_disk(self) -> bool:
        """Whether a start after a power loss would find no voters in the log. The node may have some in memory."""
        return self.node.history.is_fixed_before(self._log.flushed_end_offset)

    async def _write_state(self, state: HardState) -> None:
        """KIP-853: from kraft.version 1 on, the voters are in the log only, and the file tells the next start so.

        Without the voters it would start as an observer: they must be on disk first.
        """
        is_static = self._has_static_voters_on_disk
        voters = self.node.history.static.ids if is_static else None
        directory = self._log.directory
        await self._env.threads.run(lambda: write_quorum_state(self._env.disk, directory, state, voters))
        self._has_static_state = is_static

    # Requests to other nodes

    def _send(self, message: Outbound) -> None:
        task = asyncio.create_task(self._call(message), name=f"raft call {message.to}")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, message: Outbound) -> None:
        try:
            response = await self._peers.call(message.to, message.request)
        except Exception as error:
            logger.debug("node %d does not respond: %s", message.to, error)
            self.node.on_no_response(
                message.number,
                message.to,
                self._env.clock.monotonic_ms(),
                is_refused=isinstance(error, ConnectionRefusedError),
            )
        else:
            try:
                self.node.on_response(message.number, message.to, response, self._env.clock.monotonic_ms())
            except DivergedBelowCommit as error:
                self._failure = error
        self._wake.set()

    # Snapshots of this node

    def snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        self.node.snapshot_written(snapshot)

    def log_cleaned(self, log_start_offset: int) -> None:
        self.node.log.discard_before(log_start_offset)


def _release(waiting: "list[asyncio.Future[None]]", error: BaseException | None) -> None:
    """Completes all futures and empties the list."""
    for future in waiting:
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                # Callers treat the end of the quorum as a broken connection.
                future.set_exception(error if isinstance(error, OSError) else ConnectionError(str(error)))
    waiting.clear()
