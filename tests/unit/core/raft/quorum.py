"""Raft nodes with disks and a network that a test drives by hand or at random; everything from one seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Outbound,
    ReplicatedBatch,
    Request,
    Response,
    VoteRequest,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import Entry, HardState, MembershipChange, Ready
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_set import (
    KRaftVersion,
    LoggedMembership,
    MembershipRecord,
    Voter,
    VoterEndpoint,
    VoterHistory,
    VoterSet,
)
from ottla.model.errors import ErrorCode

SETTINGS = RaftSettings()
BATCHES_PER_FETCH = 3
CHUNK = 4


@dataclass
class Disk:
    """What a crash leaves: the state, the batches, the newest snapshot. A snapshot's content are the batches before."""

    hard_state: HardState = field(default_factory=HardState)
    start_offset: int = 0
    batches: list[ReplicatedBatch] = field(default_factory=list)
    snapshot: OffsetAndEpoch | None = None
    snapshot_batches: tuple[ReplicatedBatch, ...] = ()
    snapshot_membership: tuple[MembershipRecord, ...] = ()

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_offset

    def log_state(self) -> LogState:
        log = LogState(
            self.start_offset, self.start_offset, snapshots=[self.snapshot] if self.snapshot else []
        )
        for batch in self.batches:
            log.append(batch.epoch, batch.next_offset)
        return log

    def history(self, found: tuple[int, ...], *, is_fixed: bool = False) -> VoterHistory:
        """`found` are asked for the leader, or are static voters until kraft.version is raised."""
        history = VoterHistory(VoterSet.of_ids(found), is_fixed=is_fixed)
        if self.snapshot is not None:
            history.install(self.snapshot.offset, self.snapshot_membership)
        for batch in self.batches:
            for logged in batch.membership:
                history.append(*logged)
        return history

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        assert self.end_offset == offset, "batches are truncated whole"

    def all_batches(self) -> list[ReplicatedBatch]:
        return [*self.snapshot_batches, *self.batches] if self.start_offset else self.batches


def as_batch(entry: Entry | ReplicatedBatch) -> ReplicatedBatch:
    if isinstance(entry, ReplicatedBatch):
        return entry
    membership = entry.payload.records if isinstance(entry.payload, MembershipChange) else ()
    logged = [LoggedMembership(offset, record) for offset, record in enumerate(membership, entry.base_offset)]
    return ReplicatedBatch(entry.base_offset, entry.next_offset, entry.epoch, entry.payload, tuple(logged))


def dynamic_voter(node_id: int) -> Voter:
    return Voter(node_id, UUID(int=node_id), (VoterEndpoint("CONTROLLER", f"host{node_id}", 9093),), (0, 1))


def bootstrap_disk(*voters: int) -> Disk:
    """As a formatted controller has it, with the first voters in the bootstrap snapshot."""
    membership = (KRaftVersion(1), VoterSet.of(map(dynamic_voter, voters)))
    return Disk(snapshot=OffsetAndEpoch(0, 0), snapshot_membership=membership)


class Member:
    """One node with its disk. `persist` does what `Ready` asks for, and returns what was done.

    `own`: the voters are those of the log; `voters` are only asked for the leader, or count as long as the log has
    none (`is_fixed`).
    """

    def __init__(
        self,
        node_id: int,
        voters: tuple[int, ...],
        random: Random,
        disk: Disk | None = None,
        own: Voter | None = None,
        *,
        is_fixed: bool = False,
    ) -> None:
        self.disk = disk or Disk()
        self.own = own
        self.is_fixed = is_fixed
        self._arguments: tuple[int, tuple[int, ...], Callable[[int], int]] = (
            node_id,
            voters,
            random.randrange,
        )
        self.node = self.start(0)

    def start(self, now_ms: int) -> RaftNode:
        node_id, voters, random_below = self._arguments
        self.node = RaftNode(
            node_id,
            voters if self.own is None else self.disk.history(voters, is_fixed=self.is_fixed),
            hard_state=self.disk.hard_state,
            log=self.disk.log_state(),
            settings=SETTINGS,
            random_below=random_below,
            now_ms=now_ms,
            own=self.own,
        )
        return self.node

    def persist(self, ready: Ready) -> Ready:
        disk = self.disk
        if ready.hard_state is not None:
            assert ready.hard_state.epoch >= disk.hard_state.epoch
            disk.hard_state = ready.hard_state
        if ready.truncate_to is not None:
            disk.truncate_to(ready.truncate_to)
        for entry in ready.entries:
            batch = as_batch(entry)
            assert batch.base_offset == disk.end_offset, "the log has no holes"
            assert batch.epoch <= disk.hard_state.epoch, "the state is durable before entries of its epoch"
            disk.batches.append(batch)
        if ready.chunk is not None and ready.chunk.is_last:
            disk.snapshot = ready.chunk.snapshot
            disk.start_offset = ready.chunk.snapshot.offset
            disk.batches = []
            membership = decode_membership(ready.chunk.data) if self.own is not None else ()
            disk.snapshot_membership = membership
            return ready._replace(chunk=ready.chunk._replace(membership=membership))
        return ready

    def run(self, now_ms: int) -> list[Outbound]:
        """Everything that is ready, one after the other."""
        messages: list[Outbound] = []
        while (ready := self.node.ready(now_ms)) is not None:
            done = self.persist(ready)
            messages += ready.messages
            self.node.advance(done)
            self.node.validate()
        return messages

    def take_snapshot(self) -> None:
        """Of all that is committed, and discards the log before it."""
        node, disk = self.node, self.disk
        end = max((b for b in disk.batches if b.next_offset <= node.high_watermark), default=None)
        if end is None:
            return
        disk.snapshot_membership = node.history.before(end.next_offset)
        disk.snapshot_batches = tuple(b for b in disk.all_batches() if b.next_offset <= end.next_offset)
        disk.snapshot = OffsetAndEpoch(end.next_offset, end.epoch)
        disk.batches = [b for b in disk.batches if b.base_offset >= end.next_offset]
        disk.start_offset = end.next_offset
        node.snapshot_written(disk.snapshot)
        node.log.discard_before(end.next_offset)

    def respond(self, request: Request, now_ms: int) -> Response:
        node = self.node
        match request:
            case VoteRequest():
                return node.on_vote(request, now_ms)
            case BeginQuorumEpochRequest():
                return node.on_begin_quorum_epoch(request, now_ms)
            case EndQuorumEpochRequest():
                return node.on_end_quorum_epoch(request, now_ms)
            case FetchRequest():
                return self._fetch(request, now_ms)
            case FetchSnapshotRequest():
                return self._fetch_snapshot(request, now_ms)

    def _fetch(self, request: FetchRequest, now_ms: int) -> FetchResponse:
        decision = self.node.on_fetch(request, now_ms)
        if not decision.reads_log:
            return decision.response
        found = [batch for batch in self.disk.batches if batch.base_offset >= request.offset]
        return decision.response._replace(batches=tuple(found[:BATCHES_PER_FETCH]))

    def _fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> FetchSnapshotResponse:
        response = self.node.on_fetch_snapshot(request, now_ms)
        if response.error is not ErrorCode.none:
            return response
        content = b"%010d" % request.snapshot.offset
        data = content[request.position : request.position + CHUNK]
        if self.own is not None:  # the last chunk has the voters
            content = content[:CHUNK] + repr(self.disk.snapshot_membership).encode()
            data = content[:CHUNK] if request.position == 0 else content[CHUNK:]
        return response._replace(size=len(content), data=data)


def decode_membership(data: bytes) -> tuple[MembershipRecord, ...]:
    """Of the representation in Python, which is enough for a simulated snapshot."""
    names: dict[str, object] = {
        kind.__name__: kind for kind in (KRaftVersion, VoterSet, Voter, VoterEndpoint, UUID)
    }
    found: tuple[MembershipRecord, ...] = eval(data, names)
    return found


def payloads(batches: list[ReplicatedBatch]) -> list[object]:
    return [batch.data for batch in batches if type(batch.data) is tuple]
