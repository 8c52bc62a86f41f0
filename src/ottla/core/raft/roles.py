"""The roles of a node. A transition replaces the role object; the package lists the transitions."""

from dataclasses import dataclass, field
from uuid import UUID

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.voter_change import VoterChange
from ottla.core.raft.voter_set import ReplicaKey, VoterSet

NEVER_MS = 2**63 - 1
# As in Kafka: an observer that has not fetched for so long is gone.
OBSERVER_SESSION_TIMEOUT_MS = 300_000


@dataclass
class Votes:
    """The votes in one election, with the node's own."""

    voters: tuple[int, ...]
    granted: dict[int, bool]

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        return sum(self.granted.get(voter, False) for voter in self.voters) >= self.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - list(self.granted.values()).count(False) < self.majority

    @property
    def missing(self) -> list[int]:
        return [voter for voter in self.voters if voter not in self.granted]


@dataclass
class Unattached:
    """Has no leader to fetch from. A voter waits for its election timeout."""

    deadline_ms: int


@dataclass
class Prospective:
    """Asks whether it would win an election before it begins a new epoch (KIP-996)."""

    votes: Votes
    deadline_ms: int


@dataclass
class Candidate:
    votes: Votes
    deadline_ms: int


@dataclass
class Follower:
    """Fetches from the leader. `has_fetched` is set by a response of the leader, until its fetch timeout expires.

    `failures_at_confirmation`: the failed fetches in a row when another node last named this leader.
    """

    deadline_ms: int
    has_fetched: bool = False
    failures_at_confirmation: int = 0
    snapshot: OffsetAndEpoch | None = None  # being fetched instead of records
    snapshot_position: int = 0


@dataclass
class Progress:
    """What the leader knows of another replica (KIP-836)."""

    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    # The leader's log end offset at the previous fetch. A follower that has reached it had caught up at that time.
    leader_end_at_last_fetch: int = -1
    has_acknowledged: bool = False  # knows this leader
    directory_id: UUID | None = None  # of the last fetch

    def on_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.leader_end_at_last_fetch >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset
        self.has_acknowledged = True


@dataclass
class Leader:
    """It resigns at `deadline_ms` unless a majority fetches before (KIP-595).

    `counts_itself` is False while it commits its own removal: it leads a quorum then that it does not belong to.
    """

    epoch_start_offset: int
    granting_voters: tuple[int, ...]
    voters: dict[int, Progress]  # without the leader
    deadline_ms: int
    announce_ms: int  # when BeginQuorumEpoch is due next
    observers: dict[int, Progress] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)  # voters, since the deadline was last extended
    has_committed: bool = False  # an entry of its own epoch
    counts_itself: bool = True
    change: VoterChange | None = None  # that a client waits for

    def set_voters(self, voters: VoterSet, own: ReplicaKey) -> None:
        """Another voter set counts from now on. What is known of a replica stays known."""
        before = {**self.observers, **self.voters}
        self.counts_itself = voters.has(own)
        self.voters = {}
        for voter in voters.voters:
            if voter.id == own.id:
                continue
            known = before.pop(voter.id, None)
            is_same = known is not None and voter.is_replica(ReplicaKey(voter.id, known.directory_id))
            self.voters[voter.id] = known if known is not None and is_same else Progress()
        self.observers = before
        self.fetched.intersection_update(self.voters)

    def progress_of(self, key: ReplicaKey, voters: VoterSet) -> Progress:
        """KIP-853: a node with the id of a voter, but another directory, does not count as that voter."""
        progress = self.voters.get(key.id) if voters.has(key) else None
        if progress is None:
            progress = self.observers.get(key.id)
            if progress is None or progress.directory_id != key.directory_id:
                progress = self.observers[key.id] = Progress()
        progress.directory_id = key.directory_id
        return progress

    def forget_inactive_observers(self, now_ms: int) -> None:
        self.observers = {
            observer: progress
            for observer, progress in self.observers.items()
            if now_ms - progress.last_fetch_ms < OBSERVER_SESSION_TIMEOUT_MS
        }

    def has_heard_from_majority(self, replica_id: int) -> bool:
        """Notes a fetch. Returns True when a majority, with the leader, has fetched since the last True."""
        if replica_id in self.voters:
            self.fetched.add(replica_id)
        voters = len(self.voters) + self.counts_itself
        if len(self.fetched) + self.counts_itself <= voters // 2:
            return False
        self.fetched.clear()
        return True

    def replicated_offset(self, own_end_offset: int) -> int:
        """The offset up to which the logs of a majority of the voters are durable."""
        ends = [progress.end_offset for progress in self.voters.values()]
        if self.counts_itself:
            ends.append(own_end_offset)
        return sorted(ends, reverse=True)[len(ends) // 2]

    def silent_voters(self, now_ms: int, period_ms: int) -> list[int]:
        """Voters that may not know this leader: they have not acknowledged it, or have not fetched for a while."""
        return [
            voter
            for voter, progress in self.voters.items()
            if not progress.has_acknowledged or now_ms - progress.last_fetch_ms >= period_ms
        ]

    @property
    def successors(self) -> tuple[int, ...]:
        """The other voters, the longest log first."""
        return tuple(sorted(self.voters, key=lambda voter: (-self.voters[voter].end_offset, voter)))


@dataclass
class Resigned:
    """Has led this epoch and grants no vote in it. Sends EndQuorumEpoch to the voters until its election timeout."""

    deadline_ms: int
    preferred_successors: tuple[int, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def succession_delay_ms(node_id: int, successors: tuple[int, ...], delay_max_ms: int) -> int:
    """When a voter stands after the leader has resigned. The first successor stands at once and the others later, so
    that their elections do not collide.
    """
    if node_id not in successors:
        return delay_max_ms
    position = successors.index(node_id)
    if position == 0:
        return 0
    return min(delay_max_ms, (delay_max_ms >> (len(successors) - 1)) << (position - 1))
