"""The state machine of one node of the quorum. The package describes how to drive it, and its roles."""

from collections.abc import Callable, Sequence

from ottla.core.raft.errors import DivergedBelowCommit, NotLeader
from ottla.core.raft.invariants import check_invariants
from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Outbound,
    ReplicatedBatch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.outbox import OBSERVER_BACKOFF_MS_MAX, UNREACHABLE_BACKOFF_MS_MAX, Outbox
from ottla.core.raft.ready import Entry, FetchDecision, HardState, LeaderChange, Ready, SnapshotChunk
from ottla.core.raft.roles import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Votes,
    succession_delay_ms,
)
from ottla.core.raft.settings import RaftSettings
from ottla.model.errors import ErrorCode

UNKNOWN_OFFSET = -1
EPOCH_MAX = 2**31 - 1  # no epoch could follow it: a node that accepted it could never be elected again


class RaftNode:
    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        *,
        hard_state: HardState,
        log: LogState,
        settings: RaftSettings,
        random_below: Callable[[int], int],
        now_ms: int,
    ) -> None:
        """`log` describes the log on disk. Its last epoch may be above that of `hard_state`."""
        self.node_id = node_id
        self.voters = tuple(sorted(voters))
        self.log = log
        self.high_watermark = log.snapshots[-1].offset if log.snapshots else 0
        self.hard_state = hard_state
        if log.last_epoch > hard_state.epoch:
            self.hard_state = HardState(log.last_epoch)
        self.settings = settings
        self._random_below = random_below
        self._durable_state = hard_state
        self._durable_end = log.end_offset
        self._leader_high_watermark = 0  # from the last response of the leader
        self._truncate_to: int | None = None
        self._unsaved: list[Entry | ReplicatedBatch] = []
        self._chunk: SnapshotChunk | None = None
        backoff_ms_max = UNREACHABLE_BACKOFF_MS_MAX if self.is_voter else OBSERVER_BACKOFF_MS_MAX
        self._outbox = Outbox(settings.retry_backoff_ms, backoff_ms_max)
        self.role: Role = self._first_role(now_ms)

    def _first_role(self, now_ms: int) -> Role:
        if self.leader_id == self.node_id:
            if self.is_voter:
                # It may have lost unflushed entries of this epoch, whose offsets must not be written again in it.
                return Resigned(now_ms + self._election_timeout_ms())
            self.hard_state = self.hard_state._replace(leader_id=NO_NODE)  # it is only an observer now
        if self.leader_id != NO_NODE:
            return Follower(now_ms + self.settings.fetch_timeout_ms)
        # A quorum that starts does not wait for an election timeout. If there is a leader, the voters that hear from it
        # reject the pre-vote.
        return Unattached(self._soon_ms(now_ms) if self.is_voter else NEVER_MS)

    # -- state

    @property
    def epoch(self) -> int:
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int:
        return self.hard_state.leader_id

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def epoch_start_offset(self) -> int:
        """The first offset of this leader's epoch."""
        assert isinstance(self.role, Leader)
        return self.role.epoch_start_offset

    # -- time

    def next_tick_ms(self) -> int:
        """The time of the next `tick` and `ready` if no message comes before."""
        deadlines = [self.role.deadline_ms, self._outbox.next_retry_ms]
        if isinstance(self.role, Leader) and len(self.voters) > 1:
            deadlines.append(self.role.announce_ms)
        return min(deadlines)

    def tick(self, now_ms: int) -> None:
        self._outbox.end_pauses(now_ms)
        if self.voters == (self.node_id,) and not self.is_leader:
            # The only voter does not wait for others.
            self._stand_for_election(now_ms)
        elif now_ms >= self.role.deadline_ms:
            self._on_timeout(now_ms)

    def _on_timeout(self, now_ms: int) -> None:
        match self.role:
            case Follower() as follower if not self.is_voter:
                self._outbox.give_up(self.leader_id, now_ms)
                follower.deadline_ms = now_ms + self.settings.fetch_timeout_ms
            case Unattached() | Candidate() | Follower():
                self._become_prospective(now_ms)
            case Prospective():
                self._give_up_prospects(now_ms)
            case Leader():
                self.resign(now_ms)
            case Resigned():
                # In the same epoch, its responses would still name it as the leader.
                self._become_unattached(self.epoch + 1, now_ms)

    # -- roles

    def _become(self, role: Role) -> None:
        self.role = role
        self._outbox.clear()

    def _become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_NODE) -> None:
        deadline_ms = self._unattached_deadline_ms(now_ms)
        if self.is_voter and isinstance(self.role, Unattached | Candidate | Resigned):
            deadline_ms = min(self.role.deadline_ms, deadline_ms)
        voted_id = self.hard_state.voted_id if epoch == self.epoch else NO_NODE
        self.hard_state = HardState(epoch, leader_id, voted_id)
        self._become(Unattached(deadline_ms))

    def _become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        voted_id = self.hard_state.voted_id if epoch == self.epoch else NO_NODE
        self.hard_state = HardState(epoch, leader_id, voted_id)
        self._leader_high_watermark = 0
        failures = self._outbox.failures(leader_id)
        self._become(Follower(now_ms + self.settings.fetch_timeout_ms, failures_at_confirmation=failures))

    def _become_prospective(self, now_ms: int) -> None:
        if isinstance(self.role, Candidate):
            self.hard_state = self.hard_state._replace(leader_id=NO_NODE)
        votes = Votes(self.voters, {self.node_id: True})
        self._become(Prospective(votes, now_ms + self._election_timeout_ms()))

    def _give_up_prospects(self, now_ms: int) -> None:
        if self.leader_id not in (NO_NODE, self.node_id):
            self._become_follower(self.epoch, self.leader_id, now_ms)
        else:
            self._become(Unattached(self._unattached_deadline_ms(now_ms)))

    def _stand_for_election(self, now_ms: int) -> None:
        self.hard_state = HardState(self.epoch + 1, NO_NODE, self.node_id)
        candidate = Candidate(Votes(self.voters, {self.node_id: True}), now_ms + self._election_timeout_ms())
        self._become(candidate)
        if candidate.votes.is_won:
            self._become_leader(candidate.votes, now_ms)

    def _become_leader(self, votes: Votes, now_ms: int) -> None:
        self.hard_state = HardState(self.epoch, self.node_id, NO_NODE)
        others = {voter: Progress() for voter in self.voters if voter != self.node_id}
        granting = tuple(voter for voter, is_granted in sorted(votes.granted.items()) if is_granted)
        deadline_ms = self._check_quorum_deadline_ms(now_ms)
        self._become(Leader(self.log.end_offset, granting, others, deadline_ms, now_ms))
        self._append(LeaderChange(self.node_id, self.voters, granting))

    def resign(self, now_ms: int) -> None:
        """Gives up the leadership and asks the other voters, the longest log first, to stand for election."""
        if isinstance(self.role, Leader):
            successors = self.role.successors
            self._become(Resigned(now_ms + self._election_timeout_ms(), successors, set(successors)))

    def _election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self._random_below(timeout_ms) if timeout_ms else 0

    def _soon_ms(self, now_ms: int) -> int:
        """When to ask for pre-votes. Voters ask at different times, so that their elections do not collide."""
        return now_ms + self._random_below(max(self.settings.election_timeout_ms // 4, 1))

    def _unattached_deadline_ms(self, now_ms: int) -> int:
        return now_ms + self._election_timeout_ms() if self.is_voter else NEVER_MS

    def _check_quorum_deadline_ms(self, now_ms: int) -> int:
        if len(self.voters) == 1:
            return NEVER_MS
        return now_ms + self.settings.fetch_timeout_ms * 3 // 2

    # -- requests

    def on_vote(self, request: VoteRequest, now_ms: int) -> VoteResponse:
        is_valid = request.candidate_id >= 0 and request.log_end.offset >= 0 and request.epoch < EPOCH_MAX
        if not is_valid or not 0 <= request.log_end.epoch <= request.epoch - (not request.is_pre_vote):
            return self._vote_response(error=ErrorCode.invalid_request)
        if request.epoch < self.epoch:
            return self._vote_response(error=ErrorCode.fenced_leader_epoch)
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        is_granted = self._grants_vote(request)
        if is_granted and not request.is_pre_vote and self.hard_state.voted_id == NO_NODE:
            # Restarts the election timeout, so that the candidate has time to win.
            self.hard_state = self.hard_state._replace(voted_id=request.candidate_id)
            self._become(Unattached(self._unattached_deadline_ms(now_ms)))
        return self._vote_response(is_granted=is_granted)

    def _grants_vote(self, request: VoteRequest) -> bool:
        is_up_to_date = request.log_end.is_up_to_date_with(self.log.end)
        match self.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched) if request.is_pre_vote:
                return is_up_to_date and not has_fetched
            case _ if request.is_pre_vote:
                return is_up_to_date
        if self.hard_state.voted_id != NO_NODE:
            return self.hard_state.voted_id == request.candidate_id
        return self.leader_id == NO_NODE and is_up_to_date

    def _vote_response(self, *, is_granted: bool = False, error: ErrorCode = ErrorCode.none) -> VoteResponse:
        return VoteResponse(self.epoch, self.leader_id, is_granted, error)

    def on_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> EpochResponse:
        return EpochResponse(*self._news_from_leader(request.epoch, request.leader_id, now_ms))

    def on_end_quorum_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> EpochResponse:
        response = EpochResponse(*self._news_from_leader(request.epoch, request.leader_id, now_ms))
        if response.error is ErrorCode.none and isinstance(self.role, Follower) and self.is_voter:
            delay_max_ms = self.settings.election_backoff_max_ms
            delay_ms = succession_delay_ms(self.node_id, request.preferred_successors, delay_max_ms)
            self.role.deadline_ms = now_ms + delay_ms
        return response

    def _news_from_leader(self, epoch: int, leader_id: int, now_ms: int) -> tuple[int, int, ErrorCode]:
        if epoch < self.epoch:
            return self.epoch, self.leader_id, ErrorCode.fenced_leader_epoch
        if not self._is_consistent(epoch, leader_id) or leader_id in (NO_NODE, self.node_id):
            return self.epoch, self.leader_id, ErrorCode.invalid_request
        self._follow_news(epoch, leader_id, now_ms)
        return self.epoch, self.leader_id, ErrorCode.none

    def _is_consistent(self, epoch: int, leader_id: int) -> bool:
        """Whether `leader_id` may be the leader of `epoch`: a voter, and no other leader of this epoch is known."""
        if epoch >= EPOCH_MAX or leader_id not in (NO_NODE, *self.voters):
            return False
        return leader_id == NO_NODE or epoch != self.epoch or self.leader_id in (NO_NODE, leader_id)

    def _follow_news(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Applies another node's view of the leader. `epoch` is not below this node's; the leader may be unknown."""
        if leader_id == self.node_id:
            if epoch > self.epoch:
                # This node has led `epoch` and lost its state. It must not vote in this epoch again.
                self._become_unattached(epoch, now_ms)
                self.hard_state = self.hard_state._replace(voted_id=self.node_id)
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
        leader.progress_of(request.replica_id).on_fetch(request.offset, self.log.end_offset, now_ms)
        self._note_contact(leader, request.replica_id, now_ms)
        self._advance_high_watermark(leader)

    def _note_contact(self, leader: Leader, replica_id: int, now_ms: int) -> None:
        if leader.has_heard_from_majority(replica_id):
            leader.deadline_ms = self._check_quorum_deadline_ms(now_ms)

    def on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> FetchSnapshotResponse:
        """The response without `size` and `data`, which the caller adds if there is no error."""
        error = self.leadership_error(request.epoch)
        is_known = request.snapshot.offset > 0 and request.snapshot in self.log.snapshots
        if error is ErrorCode.none and not is_known:
            error = ErrorCode.snapshot_not_found
        if error is ErrorCode.none and isinstance(self.role, Leader):
            self._note_contact(self.role, request.replica_id, now_ms)
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

    # -- responses

    def on_response(self, number: int, sender: int, response: Response, now_ms: int) -> None:
        """Applies the response to a request, unless the request is no longer outstanding."""
        self._outbox.reached(sender)
        if not self._outbox.take(number, sender) or self._learn_from(response, sender, now_ms):
            return
        if response.error is not ErrorCode.none:
            self._outbox.pause(sender, now_ms)
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
        if not self._outbox.take(number, receiver):
            return
        if isinstance(self.role, Follower) and self.is_voter and is_refused:
            # The leader is dead. If it is not, voters that hear from it reject the pre-vote.
            self.role.deadline_ms = min(self.role.deadline_ms, self._soon_ms(now_ms))
        self._outbox.pause_unreachable(receiver, now_ms)

    def _learn_from(self, response: Response, sender: int, now_ms: int) -> bool:
        """Applies epoch and leader of a response. Returns True if the rest of the response is obsolete."""
        epoch, leader_id = response.epoch, response.leader_id
        if epoch < self.epoch or not self._is_consistent(epoch, leader_id):
            self._outbox.pause(sender, now_ms)  # an observer would ask it again at once
            return True
        if epoch > self.epoch:
            self._follow_news(epoch, leader_id, now_ms)
            return True
        if leader_id != NO_NODE and self.leader_id == NO_NODE and leader_id != self.node_id:
            if not self.is_voter and not self._outbox.may_send_to(leader_id, now_ms):
                self._outbox.pause(sender, now_ms)  # it does not know yet that the leader cannot be reached
                return True
            self._become_follower(epoch, leader_id, now_ms)
            # If the observer has asked the leader itself, the response has records.
            return not isinstance(response, FetchResponse) or response.error is not ErrorCode.none
        if isinstance(self.role, Follower) and leader_id == self.leader_id:
            self.role.failures_at_confirmation = self._outbox.failures(leader_id)
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
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            self._follow_high_watermark()

    def _truncate(self, offset: int) -> None:
        self._check_above_commit(offset)
        self.log.truncate_to(offset)
        self._truncate_to = offset

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
            self._outbox.pause(self.leader_id, now_ms)

    def _follow_high_watermark(self) -> None:
        self.high_watermark = max(self.high_watermark, min(self._leader_high_watermark, self._durable_end))

    # -- the log

    def propose(self, values: Sequence[bytes]) -> Entry:
        """Appends records that are committed together. Raises NotLeader."""
        if not isinstance(self.role, Leader):
            raise NotLeader(f"node {self.node_id} does not lead the quorum in epoch {self.epoch}")
        if not values:
            raise ValueError("a proposal has at least one record")
        return self._append(tuple(values))

    def _append(self, payload: LeaderChange | tuple[bytes, ...]) -> Entry:
        entry = Entry(self.log.end_offset, self.epoch, payload)
        self.log.append(entry.epoch, entry.next_offset)
        self._unsaved.append(entry)
        return entry

    def snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        """This node has written a snapshot of committed records."""
        self.log.snapshots.append(snapshot)

    def ready(self, now_ms: int) -> Ready | None:
        """What to do next; None if there is nothing. Call `advance` before calling it again."""
        hard_state = None if self.hard_state == self._durable_state else self.hard_state
        messages = tuple(self._messages(now_ms))
        is_idle = hard_state is None and self._truncate_to is None and self._chunk is None
        if is_idle and not self._unsaved and not messages:
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
            if isinstance(self.role, Follower):
                self.role.snapshot = None

    # -- messages

    def _messages(self, now_ms: int) -> list[Outbound]:
        found: list[tuple[int, Request]] = []
        match self.role:
            case Prospective(votes=votes) | Candidate(votes=votes) if not votes.is_lost:
                is_pre_vote = isinstance(self.role, Prospective)
                vote = VoteRequest(self.epoch, self.node_id, self.log.end, is_pre_vote)
                found = [(voter, vote) for voter in votes.missing]
            case Leader() as leader:
                found = self._announcements(leader, now_ms)
            case Resigned() as resigned:
                end = EndQuorumEpochRequest(self.epoch, self.node_id, resigned.preferred_successors)
                found = [(voter, end) for voter in sorted(resigned.unacknowledged)]
            case Follower() as follower:
                found = self._fetches(follower, now_ms)
            case Unattached() if not self.is_voter:
                found = self._search_for_leader(now_ms)
        return self._outbox.send_all(found, now_ms)

    def _announcements(self, leader: Leader, now_ms: int) -> list[tuple[int, Request]]:
        """BeginQuorumEpoch requests to the voters that may not know the leader."""
        if now_ms < leader.announce_ms:
            return []
        period_ms = self.settings.fetch_timeout_ms // 2
        leader.announce_ms = now_ms + period_ms
        begin = BeginQuorumEpochRequest(self.epoch, self.node_id)
        return [(voter, begin) for voter in leader.silent_voters(now_ms, period_ms)]

    def _fetches(self, follower: Follower, now_ms: int) -> list[tuple[int, Request]]:
        if self._unsaved or self._truncate_to is not None or self._chunk is not None:
            return []  # a fetch reports that the log is durable up to its offset
        fetch: Request = self._fetch_request()
        if follower.snapshot is not None:
            position = follower.snapshot_position
            fetch = FetchSnapshotRequest(self.epoch, self.node_id, follower.snapshot, position)
        return [(self.leader_id, fetch), *self._search_for_successor(follower, now_ms)]

    def _search_for_successor(self, follower: Follower, now_ms: int) -> list[tuple[int, Request]]:
        """The leader of an observer may be dead, and nobody announces the next one to an observer."""
        failures = 0 if self.is_voter else self._outbox.failures(self.leader_id)
        is_confirmed = failures == follower.failures_at_confirmation
        is_waiting = is_confirmed and not self._outbox.is_paused(self.leader_id, now_ms)
        return [] if failures == 0 or is_waiting else self._search_for_leader(now_ms)

    def _fetch_request(self) -> FetchRequest:
        end = self.log.end
        return FetchRequest(self.epoch, self.node_id, end.offset, end.epoch, self.high_watermark)

    def _search_for_leader(self, now_ms: int) -> list[tuple[int, Request]]:
        asked = self._outbox.choose([voter for voter in self.voters if voter != self.leader_id], now_ms)
        return [] if asked is None else [(asked, self._fetch_request())]

    # -- invariants

    def validate(self) -> None:
        """Raises AssertionError if an invariant is broken. Simulations call it after every event."""
        check_invariants(self)
