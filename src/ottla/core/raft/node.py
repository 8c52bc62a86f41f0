"""The state machine of one node of the quorum. The package describes how to drive it, and its roles."""

from collections.abc import Sequence
from uuid import UUID

from ottla.core.raft.errors import DivergedBelowCommit, NotLeader
from ottla.core.raft.invariants import check_invariants
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.membership import advance_change, end_committed_change
from ottla.core.raft.messages import (
    EPOCH_MAX,
    NO_NODE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Outbound,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node_roles import NodeRoles
from ottla.core.raft.ready import (
    Entry,
    FetchDecision,
    HardState,
    Ready,
    SnapshotChunk,
)
from ottla.core.raft.requests import due_requests
from ottla.core.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    succession_delay_ms,
)
from ottla.core.raft.voter_set import ReplicaKey
from ottla.core.raft.votes import grants_vote, is_valid_vote
from ottla.model.errors import ErrorCode

UNKNOWN_OFFSET = -1


class RaftNode(NodeRoles):
    # -- requests

    def on_vote(self, request: VoteRequest, now_ms: int) -> VoteResponse:
        if not is_valid_vote(request):
            return self._vote_response(error=ErrorCode.invalid_request)
        if not self._is_meant(request.voter_directory_id):
            return self._vote_response(error=ErrorCode.invalid_voter_key)
        if request.epoch < self.epoch:
            return self._vote_response(error=ErrorCode.fenced_leader_epoch)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        is_granted = self._grants_vote(request)
        if is_granted and not request.is_pre_vote and self.hard_state.voted_id == NO_NODE:
            # Restarts the election timeout, so that the candidate has time to win.
            self.hard_state = self.hard_state._replace(
                voted_id=request.candidate_id, voted_directory_id=request.candidate_directory_id
            )
            self._become(Unattached(self.unattached_deadline_ms(now_ms)))
        return self._vote_response(is_granted=is_granted)

    def _grants_vote(self, request: VoteRequest) -> bool:
        return grants_vote(self.role, self.hard_state, self.log.end, request)

    def _vote_response(self, *, is_granted: bool = False, error: ErrorCode = ErrorCode.none) -> VoteResponse:
        return VoteResponse(self.epoch, self.leader_id, is_granted, error)

    def _is_meant(self, directory_id: UUID | None) -> bool:
        """KIP-853: a request for the voter that this node was before it got a new disk is not for this node."""
        return directory_id is None or self.own.directory_id in (None, directory_id)

    def on_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> EpochResponse:
        if not self._is_meant(request.voter_directory_id):
            return EpochResponse(self.epoch, self.leader_id, ErrorCode.invalid_voter_key)
        return EpochResponse(*self._news_from_leader(request.epoch, request.leader_id, now_ms))

    def on_end_quorum_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> EpochResponse:
        response = EpochResponse(*self._news_from_leader(request.epoch, request.leader_id, now_ms))
        if response.error is ErrorCode.none and isinstance(self.role, Follower) and self.may_stand:
            delay_max_ms = self.settings.election_backoff_max_ms
            delay_ms = succession_delay_ms(self.node_id, request.preferred_successors, delay_max_ms)
            self.role.deadline_ms = now_ms + delay_ms
        return response

    def _news_from_leader(self, epoch: int, leader_id: int, now_ms: int) -> tuple[int, int, ErrorCode]:
        if epoch < self.epoch:
            return self.epoch, self.leader_id, ErrorCode.fenced_leader_epoch
        if not self.may_follow(epoch, leader_id):
            return self.epoch, self.leader_id, ErrorCode.invalid_request
        self._follow_news(epoch, leader_id, now_ms)
        return self.epoch, self.leader_id, ErrorCode.none

    def may_follow(self, epoch: int, leader_id: int) -> bool:
        is_another = leader_id not in (NO_NODE, self.node_id)
        return epoch >= self.epoch and is_another and self._is_consistent(epoch, leader_id)

    def _is_consistent(self, epoch: int, leader_id: int) -> bool:
        """Whether `leader_id` may be the leader of `epoch`: no other leader of this epoch is known.

        KIP-853: it need not be one of the voters that this node knows. Newer ones may be in the part of the log that
        this node does not have yet, also if its voters are static: kraft.version may have been raised there.
        """
        if (
            epoch >= EPOCH_MAX or leader_id < NO_NODE
        ):  # a bootstrap server has a negative id until it is known
            return False
        return leader_id == NO_NODE or epoch != self.epoch or self.leader_id in (NO_NODE, leader_id)

    def _follow_news(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Applies another node's view of the leader. `epoch` is not below this node's; the leader may be unknown."""
        if leader_id == self.node_id:
            if epoch > self.epoch:
                # This node has led `epoch` and lost its state. It must not vote in this epoch again.
                self._become_unattached(epoch, now_ms)
                self.hard_state = HardState(epoch, NO_NODE, *self.own.key)
        elif leader_id == NO_NODE:
            if epoch > self.epoch:
                self._become_unattached(epoch, now_ms)
        elif epoch > self.epoch or self.leader_id == NO_NODE:
            self._become_follower(epoch, leader_id, now_ms)

    def on_fetch(self, request: FetchRequest, now_ms: int) -> FetchDecision:
        """Takes the offset of a replica's fetch as its log end offset. A negative id is that of a consumer."""
        if not 0 <= request.last_epoch <= request.epoch or request.offset < 0:
            return self._fetch_error(ErrorCode.invalid_request)
        error = self.leadership_error(request.epoch)
        if error is not ErrorCode.none:
            return self._fetch_error(error)
        assert isinstance(self.role, Leader)
        position = self.log.position_of(request.offset, request.last_epoch)
        if position.diverging is not None or position.snapshot is not None:
            response = FetchResponse(
                self.epoch,
                self.leader_id,
                self._announced_high_watermark(),
                diverging=position.diverging,
                snapshot=position.snapshot,
            )
            return FetchDecision(response)
        if request.replica_id >= 0:
            self._note_fetch(self.role, request, now_ms)
        high_watermark = self._announced_high_watermark()
        return FetchDecision(
            FetchResponse(self.epoch, self.leader_id, high_watermark),
            reads_log=True,
            has_news=high_watermark > request.high_watermark,
        )

    def _fetch_error(self, error: ErrorCode) -> FetchDecision:
        return FetchDecision(FetchResponse(self.epoch, self.leader_id, error=error))

    def leadership_error(self, epoch: int) -> ErrorCode:
        """The error for a request to the leader of `epoch`; none if this node leads it."""
        if epoch < self.epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none if self.is_leader else ErrorCode.not_leader_or_follower

    def _note_fetch(self, leader: Leader, request: FetchRequest, now_ms: int) -> None:
        key = ReplicaKey(request.replica_id, request.directory_id)
        progress = leader.progress_of(key, self.history.latest)
        progress.on_fetch(request.offset, self.log.end_offset, now_ms)
        self._note_contact(leader, key, now_ms)
        self._advance_high_watermark(leader)
        advance_change(self, leader, now_ms)

    def _note_contact(self, leader: Leader, key: ReplicaKey, now_ms: int) -> None:
        if self.history.latest.has(key) and leader.has_heard_from_majority(key.id):
            leader.deadline_ms = self.check_quorum_deadline_ms(now_ms)

    def on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> FetchSnapshotResponse:
        """The response without `size` and `data`, which the caller adds if there is no error."""
        error = self.leadership_error(request.epoch)
        is_known = request.snapshot.offset > 0 and request.snapshot in self.log.snapshots
        if error is ErrorCode.none and not is_known:
            error = ErrorCode.snapshot_not_found
        if error is ErrorCode.none and isinstance(self.role, Leader):
            self._note_contact(self.role, ReplicaKey(request.replica_id, request.directory_id), now_ms)
        snapshot, position = request.snapshot, request.position
        return FetchSnapshotResponse(self.epoch, self.leader_id, snapshot, position=position, error=error)

    def _announced_high_watermark(self) -> int:
        """The high watermark for responses. A new leader does not know it until an entry of its epoch is committed."""
        assert isinstance(self.role, Leader)
        return self.high_watermark if self.role.has_committed else UNKNOWN_OFFSET

    def _advance_high_watermark(self, leader: Leader) -> None:
        replicated = leader.replicated_offset(self._durable_end)
        # Raft, 5.4.2: entries of earlier epochs are committed only together with one of the leader's epoch.
        if replicated > leader.epoch_start_offset:
            leader.has_committed = True
            self.high_watermark = max(self.high_watermark, replicated)
            end_committed_change(self, leader)

    # -- responses

    def on_response(self, number: int, sender: int, response: Response, now_ms: int) -> None:
        """Applies the response to a request, unless the request is no longer outstanding."""
        self.outbox.reached(sender)
        # An observer asks others beside its leader. A bootstrap server among them may be the leader under another id
        # (KIP-853): its records may be older than those that the leader has sent meanwhile.
        is_beside_leader = isinstance(self.role, Follower) and sender != self.leader_id
        if not self.outbox.take(number, sender) or self._learn_from(response, sender, now_ms):
            return
        if response.error is not ErrorCode.none or is_beside_leader:
            self.outbox.pause(sender, now_ms)
            if isinstance(response, FetchSnapshotResponse):
                self.give_up_snapshot(now_ms)
            return
        match response:
            case VoteResponse():
                self._count_vote(sender, response.is_granted, now_ms)
            case EpochResponse():
                self._acknowledged_by(sender)
            case FetchResponse():
                self._on_fetched(response, now_ms)
            case FetchSnapshotResponse():
                self._on_snapshot_fetched(response, now_ms)

    def on_no_response(self, number: int, receiver: int, now_ms: int, *, is_refused: bool = False) -> None:
        """A request has timed out, or its connection has failed. `is_refused`: no process listens there."""
        if not self.outbox.take(number, receiver):
            return
        if isinstance(self.role, Follower) and self.may_stand and is_refused:
            # The leader is dead. If it is not, voters that hear from it reject the pre-vote.
            self.role.deadline_ms = min(self.role.deadline_ms, self.soon_ms(now_ms))
        self.outbox.pause_unreachable(receiver, now_ms)

    def _learn_from(self, response: Response, sender: int, now_ms: int) -> bool:
        """Applies epoch and leader of a response. Returns True if the rest of the response is obsolete."""
        epoch, leader_id = response.epoch, response.leader_id
        if epoch < self.epoch or not self._is_consistent(epoch, leader_id):
            self.outbox.pause(sender, now_ms)  # an observer would ask it again at once
            return True
        if epoch > self.epoch:
            self._follow_news(epoch, leader_id, now_ms)
            return True
        if leader_id != NO_NODE and self.leader_id == NO_NODE and leader_id != self.node_id:
            if not self.may_stand and not self.outbox.may_send_to(leader_id, now_ms):
                self.outbox.pause(sender, now_ms)  # it does not know yet that the leader cannot be reached
                return True
            self._become_follower(epoch, leader_id, now_ms)
            # If the observer has asked the leader itself, the response has records.
            return not isinstance(response, FetchResponse) or response.error is not ErrorCode.none
        if isinstance(self.role, Follower) and leader_id == self.leader_id:
            self.role.failures_at_confirmation = self.outbox.failures(leader_id)
        return False

    def _count_vote(self, voter: int, is_granted: bool, now_ms: int) -> None:
        match self.role:
            case Prospective(votes=votes):
                votes.granted[voter] = is_granted
                if votes.is_won:
                    self._stand_for_election(now_ms)
                elif votes.is_lost:
                    self._give_up_prospects(now_ms)
            case Candidate(votes=votes):
                votes.granted[voter] = is_granted
                if votes.is_won:
                    self._become_leader(votes, now_ms)
                elif votes.is_lost:
                    self._become_prospective(now_ms)

    def _acknowledged_by(self, voter: int) -> None:
        match self.role:
            case Leader(voters=followers):
                if voter in followers:  # it may have been removed meanwhile
                    followers[voter].has_acknowledged = True
            case Resigned(unacknowledged=unacknowledged):
                unacknowledged.discard(voter)

    def _on_fetched(self, response: FetchResponse, now_ms: int) -> None:
        if not isinstance(self.role, Follower):
            return
        self.role.has_fetched = True
        self.role.deadline_ms = now_ms + self.settings.fetch_timeout_ms
        if response.diverging is not None:
            self._truncate(self.log.truncation_for(response.diverging))
        elif response.snapshot is not None:
            self._check_above_commit(response.snapshot.offset)
            self.role.snapshot, self.role.snapshot_position = response.snapshot, 0
        else:
            for batch in response.batches:
                # Batches must be contiguous, and none can have an epoch after the leader's.
                if batch.base_offset != self.log.end_offset or batch.epoch > self.epoch:
                    break
                self.log.append(batch.epoch, batch.next_offset)
                self._unsaved.append(batch)
                self.take_membership(batch.membership)
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            self._follow_high_watermark()

    def _truncate(self, offset: int) -> None:
        self._check_above_commit(offset)
        self.log.truncate_to(offset)
        self._truncate_to = offset
        self.history.truncate_to(offset)
        self.take_voters()

    def _check_above_commit(self, offset: int) -> None:
        if offset < self.high_watermark:
            raise DivergedBelowCommit(
                f"node {self.leader_id}, the leader of epoch {self.epoch}, asks node {self.node_id} to truncate its "
                f"metadata log to offset {offset}, below the high watermark {self.high_watermark}"
            )

    def _on_snapshot_fetched(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        role = self.role
        if not isinstance(role, Follower) or role.snapshot is None:
            return
        role.deadline_ms = now_ms + self.settings.fetch_timeout_ms
        if response.snapshot != role.snapshot or response.position != role.snapshot_position:
            return
        role.snapshot_position += len(response.data)
        is_last = role.snapshot_position >= response.size
        self._chunk = SnapshotChunk(role.snapshot, response.position, response.data, is_last)

    def give_up_snapshot(self, now_ms: int) -> None:
        """The leader no longer has the snapshot, or sent a damaged one: the next fetch asks what to fetch instead."""
        self._chunk = None
        if isinstance(self.role, Follower):
            self.role.snapshot = None
            self.outbox.pause(self.leader_id, now_ms)

    def _follow_high_watermark(self) -> None:
        self.high_watermark = max(self.high_watermark, min(self._leader_high_watermark, self._durable_end))

    # -- the log

    def propose(self, values: Sequence[bytes]) -> Entry:
        """Appends records that are committed together. Raises NotLeader."""
        if not isinstance(self.role, Leader):
            raise NotLeader(f"node {self.node_id} does not lead the quorum in epoch {self.epoch}")
        if not values:
            raise ValueError("a proposal has at least one record")
        return self.append(tuple(values))

    def snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        """This node has written a snapshot of committed records."""
        self.log.snapshots.append(snapshot)
        self.history.discard_before(snapshot.offset)

    def ready(self, now_ms: int) -> Ready | None:
        """What to do next; None if there is nothing. Call `advance` before calling it again."""
        hard_state = None if self.hard_state == self._durable_state else self.hard_state
        messages = tuple(self._messages(now_ms))
        if hard_state is None and not self.has_unsaved_log and not messages:
            return None
        return Ready(hard_state, self._truncate_to, tuple(self._unsaved), self._chunk, messages)

    def advance(self, ready: Ready) -> None:
        """All of `ready` is done. Changes since that call are in the next `ready`."""
        if ready.hard_state is not None:
            self._durable_state = ready.hard_state
        if ready.truncate_to is not None:
            self._durable_end = ready.truncate_to
            if self._truncate_to == ready.truncate_to:
                self._truncate_to = None
        del self._unsaved[: len(ready.entries)]
        if ready.entries:
            self._durable_end = ready.entries[-1].next_offset
        if ready.chunk is not None:
            self._snapshot_chunk_written(ready.chunk)
        match self.role:
            case Leader() as leader:
                self._advance_high_watermark(leader)
            case Follower():
                self._follow_high_watermark()

    def _snapshot_chunk_written(self, chunk: SnapshotChunk) -> None:
        self._chunk = None
        if chunk.is_last:
            self.log.install(chunk.snapshot)
            self._durable_end = chunk.snapshot.offset
            self.high_watermark = max(self.high_watermark, chunk.snapshot.offset)
            self.history.install(chunk.snapshot.offset, chunk.membership)
            self.take_voters()
            if isinstance(self.role, Follower):
                self.role.snapshot = None
            elif isinstance(self.role, Prospective | Candidate):
                # It counts the votes of the voters before: a majority of them may have no node in common with a
                # majority of the new ones. The deadlines of an observer may be late.
                self._give_up_prospects(self.role.deadline_ms)

    # -- messages

    def _messages(self, now_ms: int) -> list[Outbound]:
        return self.outbox.send_all(due_requests(self, now_ms), now_ms)

    # -- invariants

    def validate(self) -> None:
        """Raises AssertionError if an invariant is broken. Simulations call it after every event."""
        check_invariants(self)
