"""The roles of a node, and when it takes another one. The package lists the transitions."""

from collections.abc import Callable, Sequence

from ottla.core.raft.log_state import LogState
from ottla.core.raft.membership import advance_change, begin_epoch, is_removed
from ottla.core.raft.messages import NO_NODE
from ottla.core.raft.node_state import NodeState
from ottla.core.raft.ready import HardState
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
)
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_set import Voter, VoterHistory
from ottla.model.errors import ErrorCode


class NodeRoles(NodeState):
    def __init__(
        self,
        node_id: int,
        voters: Sequence[int] | VoterHistory,
        *,
        hard_state: HardState,
        log: LogState,
        settings: RaftSettings,
        random_below: Callable[[int], int],
        now_ms: int,
        own: Voter | None = None,
    ) -> None:
        """`log` describes the log on disk. Its last epoch may be above that of `hard_state`.

        `voters` are static ones, or what the log says of them. `own` is this node as a voter, if it can become one.
        """
        super().__init__(
            node_id,
            voters,
            hard_state=hard_state,
            log=log,
            settings=settings,
            random_below=random_below,
            own=own,
        )
        self.role = self._first_role(now_ms)

    def _first_role(self, now_ms: int) -> Role:
        if self.leader_id == self.node_id:
            if self.may_stand:
                # It may have lost unflushed entries of this epoch, whose offsets must not be written again in it.
                return Resigned(now_ms + self.election_timeout_ms())
            # It is only an observer now. It voted for itself in this epoch, and must not vote for another node in it.
            self.hard_state = HardState(self.epoch, NO_NODE, *self.own.key)
        if self.leader_id != NO_NODE:
            return Follower(now_ms + self.settings.fetch_timeout_ms)
        # A quorum that starts does not wait for an election timeout. If there is a leader, the voters that hear from it
        # reject the pre-vote.
        return Unattached(self.soon_ms(now_ms) if self.may_stand else NEVER_MS)

    # -- time

    def next_tick_ms(self) -> int:
        """The time of the next `tick` and `ready` if no message comes before."""
        deadlines = [self.role.deadline_ms, self.outbox.next_retry_ms]
        if isinstance(self.role, Leader):
            if not self.is_only_voter:
                deadlines.append(self.role.announce_ms)
            if self.role.change is not None:
                deadlines.append(self.role.change.deadline_ms)
            if is_removed(self):
                return 0
        return min(deadlines)

    def tick(self, now_ms: int) -> None:
        self.outbox.end_pauses(now_ms)
        if isinstance(self.role, Leader):
            advance_change(self, self.role, now_ms)
        self._begin_timeout_of_new_voter(now_ms)
        if self.is_only_voter and self._has_nobody_to_wait_for(now_ms):
            self._stand_for_election(now_ms)
        elif is_removed(self):
            self.resign(now_ms)
        elif now_ms >= self.role.deadline_ms:
            self._on_timeout(now_ms)

    def _begin_timeout_of_new_voter(self, now_ms: int) -> None:
        """Of an observer that a snapshot has made a voter while it knew no leader."""
        if isinstance(self.role, Unattached) and self.role.deadline_ms == NEVER_MS:
            self.role.deadline_ms = self.unattached_deadline_ms(now_ms)

    def _has_nobody_to_wait_for(self, now_ms: int) -> bool:
        """The only voter leads at once, but not before a leader that removes itself has committed that."""
        match self.role:
            case Leader():
                return False
            case Follower(deadline_ms=deadline_ms):
                return now_ms >= deadline_ms
        return True

    def _on_timeout(self, now_ms: int) -> None:
        match self.role:
            case Follower() as follower if not self.may_stand:
                self.outbox.give_up(self.leader_id, now_ms)
                follower.deadline_ms = now_ms + self.settings.fetch_timeout_ms
                # It may be a voter by a log that it does not have yet, whose vote the others need (KIP-996).
                follower.has_fetched = False
            case Unattached() as unattached if not self.may_stand:  # it was a voter when its timeout began
                unattached.deadline_ms = NEVER_MS
            case Follower():
                self.outbox.give_up(self.leader_id, now_ms)
                self._become_prospective(now_ms)
            case Unattached() | Candidate():
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
        if isinstance(self.role, Leader) and self.role.change is not None:
            self.role.change.end(
                ErrorCode.not_leader_or_follower, f"node {self.node_id} no longer leads the quorum"
            )
        self.role = role
        self.outbox.clear()

    def _become_unattached(self, epoch: int, now_ms: int, leader_id: int = NO_NODE) -> None:
        deadline_ms = self.unattached_deadline_ms(now_ms)
        if self.may_stand and isinstance(self.role, Unattached | Candidate | Resigned):
            deadline_ms = min(self.role.deadline_ms, deadline_ms)
        self.hard_state = self.hard_state.in_epoch(epoch, leader_id)
        self._become(Unattached(deadline_ms))

    def _become_follower(self, epoch: int, leader_id: int, now_ms: int, *, is_confirmed: bool = True) -> None:
        """`is_confirmed`: another node names this leader."""
        self.hard_state = self.hard_state.in_epoch(epoch, leader_id)
        self._leader_high_watermark = 0
        failures = self.outbox.failures(leader_id) if is_confirmed else 0
        self._become(Follower(now_ms + self.settings.fetch_timeout_ms, failures_at_confirmation=failures))

    def _become_prospective(self, now_ms: int) -> None:
        if isinstance(self.role, Candidate):
            self.hard_state = self.hard_state._replace(leader_id=NO_NODE)
        votes = Votes(self.voters, self._own_vote())
        self._become(Prospective(votes, now_ms + self.election_timeout_ms()))

    def _own_vote(self) -> dict[int, bool]:
        return {self.node_id: True} if self.is_voter else {}

    def _give_up_prospects(self, now_ms: int) -> None:
        if self.leader_id not in (NO_NODE, self.node_id):
            self._become_follower(self.epoch, self.leader_id, now_ms, is_confirmed=False)
        else:
            self._become(Unattached(self.unattached_deadline_ms(now_ms)))

    def _stand_for_election(self, now_ms: int) -> None:
        self._chunk = None  # the snapshot would replace the log that the votes are for
        self.hard_state = HardState(self.epoch + 1, NO_NODE, *self.own.key)
        candidate = Candidate(Votes(self.voters, self._own_vote()), now_ms + self.election_timeout_ms())
        self._become(candidate)
        if candidate.votes.is_won:
            self._become_leader(candidate.votes, now_ms)

    def _become_leader(self, votes: Votes, now_ms: int) -> None:
        self.hard_state = HardState(self.epoch, self.node_id, NO_NODE)
        others = {voter: Progress() for voter in self.voters if voter != self.node_id}
        granting = tuple(voter for voter, is_granted in sorted(votes.granted.items()) if is_granted)
        deadline_ms = self.check_quorum_deadline_ms(now_ms)
        leader = Leader(
            self.log.end_offset, granting, others, deadline_ms, now_ms, counts_itself=self.is_voter
        )
        self._become(leader)
        begin_epoch(self, granting)

    def resign(self, now_ms: int) -> None:
        """Gives up the leadership and asks the other voters, the longest log first, to stand for election."""
        if isinstance(self.role, Leader):
            successors = self.role.successors
            self._become(Resigned(now_ms + self.election_timeout_ms(), successors, set(successors)))
