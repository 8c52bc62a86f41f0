"""What a node of the quorum knows: its roles and rules are in `node`."""

from collections.abc import Callable, Sequence

from ottla.core.raft.log_state import LogState
from ottla.core.raft.messages import ReplicatedBatch
from ottla.core.raft.outbox import OBSERVER_BACKOFF_MS_MAX, UNREACHABLE_BACKOFF_MS_MAX, Outbox
from ottla.core.raft.ready import Entry, HardState, MembershipChange, Payload, SnapshotChunk
from ottla.core.raft.roles import NEVER_MS, Leader, Role, Unattached
from ottla.core.raft.settings import RaftSettings
from ottla.core.raft.voter_set import LoggedMembership, Voter, VoterHistory, VoterSet


class NodeState:
    def __init__(
        self,
        node_id: int,
        voters: Sequence[int] | VoterHistory,
        *,
        hard_state: HardState,
        log: LogState,
        settings: RaftSettings,
        random_below: Callable[[int], int],
        own: Voter | None = None,
    ) -> None:
        self.node_id = node_id
        self.own = own or Voter(node_id)
        self.history = (
            voters if isinstance(voters, VoterHistory) else VoterHistory(VoterSet.of_ids(sorted(voters)))
        )
        self.voters = self.history.latest.ids
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
        backoff_ms_max = UNREACHABLE_BACKOFF_MS_MAX if self.may_stand else OBSERVER_BACKOFF_MS_MAX
        self.outbox = Outbox(settings.retry_backoff_ms, backoff_ms_max)
        self.role: Role = Unattached(NEVER_MS)

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
        return self.history.has_voter(self.own.key)

    @property
    def may_stand(self) -> bool:
        """Whether this node takes part in elections as a candidate.

        KIP-853 does not say it, but raft does (dissertation, 4.2.2): a node whose removal is not committed may be the
        only one with the log that the other voters need, and they do not elect a node with a shorter one. But not if a
        replica with another directory votes under its id: the others know a leader by its id only.
        """
        if self.is_voter or self.node_id in self.voters:
            return self.is_voter
        return any(voters.has(self.own.key) for voters in self.history.in_doubt(self.high_watermark))

    @property
    def is_only_voter(self) -> bool:
        return self.voters == (self.node_id,) and self.is_voter

    @property
    def epoch_start_offset(self) -> int:
        """The first offset of this leader's epoch."""
        assert isinstance(self.role, Leader)
        return self.role.epoch_start_offset

    @property
    def durable_state(self) -> HardState:
        return self._durable_state

    @property
    def has_unsaved_log(self) -> bool:
        """Whether the log on disk is not that in memory: a fetch reports that it is."""
        return bool(self._unsaved) or self._truncate_to is not None or self._chunk is not None

    # -- time

    def election_timeout_ms(self) -> int:
        timeout_ms = self.settings.election_timeout_ms
        return timeout_ms + self._random_below(timeout_ms) if timeout_ms else 0

    def soon_ms(self, now_ms: int) -> int:
        """When to ask for pre-votes. Voters ask at different times, so that their elections do not collide."""
        return now_ms + self._random_below(max(self.settings.election_timeout_ms // 4, 1))

    def unattached_deadline_ms(self, now_ms: int) -> int:
        return now_ms + self.election_timeout_ms() if self.may_stand else NEVER_MS

    def check_quorum_deadline_ms(self, now_ms: int) -> int:
        if self.is_only_voter:
            return NEVER_MS
        return now_ms + self.settings.fetch_timeout_ms * 3 // 2

    # -- the log

    def append(self, payload: Payload) -> Entry:
        """Only for a leader, and without any check."""
        entry = Entry(self.log.end_offset, self.epoch, payload)
        self.log.append(entry.epoch, entry.next_offset)
        self._unsaved.append(entry)
        if isinstance(payload, MembershipChange):
            records = enumerate(payload.records, entry.base_offset)
            self.take_membership([LoggedMembership(offset, record) for offset, record in records])
        return entry

    def take_membership(self, membership: Sequence[LoggedMembership]) -> None:
        """The log has new voters, which count at once, committed or not (KIP-853)."""
        for logged in membership:
            self.history.append(*logged)
        if membership:
            self.take_voters()

    def take_voters(self) -> None:
        """The latest voters of the log are others than before."""
        self.voters = self.history.latest.ids
        if isinstance(self.role, Leader):
            self.role.set_voters(self.history.latest, self.own.key)
