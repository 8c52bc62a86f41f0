"""Checks the guarantees of raft and KIP-595 over the whole history of a simulated quorum.

The names are those of the raft paper (figure 3): election safety, log matching, leader completeness, state machine
safety. The checkers see every node after each of its steps, every message, and every image that a node publishes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.core.controller.image import MetadataImage
from ottla.core.controller.invariants import validate_image
from ottla.core.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.model.errors import ErrorCode
from ottla.sim.history import Violation
from ottla.sim.quorum_log_view import LoggedBatch

ELECTION_SAFETY = "election safety"
VOTE_DURABILITY = "vote durability"
LOG_MATCHING = "log matching"
LEADER_COMPLETENESS = "leader completeness"
COMMIT_RULE = "commit rule"
STATE_MACHINE_SAFETY = "state machine safety"
INVARIANTS = "invariants"
NODE_FAILURE = "node failure"
ACKNOWLEDGED_COMMANDS = "acknowledged commands"
PROGRESS = "progress after healing"
PAUSES = "pauses between retries"

# Per node, in a second of its own clock. A node asks each of at most four voters every 20 ms.
_REQUESTS_IN_VAIN_MAX = 300
_HARD_STATES_MAX = 60


class QuorumViolation(Violation):
    """`checker` is the name of the broken guarantee."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"{checker}: {message}")
        self.checker = checker


class NodeView(NamedTuple):
    """A node at the end of a step: its log is on disk up to the end of `batches`."""

    node_id: int
    epoch: int
    is_leader: bool
    high_watermark: int
    log_end_offset: int
    durable_epoch: int  # requests that came during the step may have raised `epoch`; nobody has seen that yet
    batches: Sequence[LoggedBatch]

    @property
    def durable_end(self) -> int:
        """Without batches: the end of the snapshot that replaced the log."""
        return self.batches[-1].next_offset if self.batches else self.log_end_offset


class ElectionSafety:
    """At most one leader can be elected in an epoch (raft, 5.2)."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def observe(self, epoch: int, leader_id: int) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise QuorumViolation(ELECTION_SAFETY, f"nodes {known} and {leader_id} both lead epoch {epoch}")


class VoteDurability:
    """A voter votes for one candidate in an epoch, and never returns to an earlier epoch, also after restarts."""

    def __init__(self) -> None:
        self._votes: dict[tuple[int, int], int] = {}
        self._epochs: dict[int, int] = {}

    def observe_vote(self, voter: int, epoch: int, candidate: int) -> None:
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise QuorumViolation(
                VOTE_DURABILITY, f"node {voter} voted for {known} and for {candidate} in epoch {epoch}"
            )

    def observe(self, view: NodeView) -> None:
        latest = self._epochs.get(view.node_id, 0)
        if view.epoch < latest:
            raise QuorumViolation(
                VOTE_DURABILITY, f"node {view.node_id} was in epoch {latest} and is now in {view.epoch}"
            )
        self._epochs[view.node_id] = max(latest, view.durable_epoch)

    def observe_response(self, node_id: int, epoch: int) -> None:
        """Other nodes have seen the epoch now. The node itself may be in a later one."""
        self._epochs[node_id] = max(self._epochs.get(node_id, 0), epoch)


class LogMatching:
    """If two logs have a batch with the same offset and epoch, they are equal up to and including it (raft, 5.3).

    It is enough to compare each batch and the offset and epoch of the one before it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[LoggedBatch, tuple[int, int] | None]] = {}

    def observe(self, view: NodeView) -> None:
        before: tuple[int, int] | None = None
        for batch in view.batches:
            key = (batch.base_offset, batch.epoch)
            known, known_before = self._known.get(key, (batch, before))
            if known != batch:
                raise QuorumViolation(
                    LOG_MATCHING, f"node {view.node_id} has {batch}, another node has {known}"
                )
            if before is not None and known_before is not None and before != known_before:
                raise QuorumViolation(
                    LOG_MATCHING,
                    f"before {batch}, node {view.node_id} has the batch (offset, epoch) {before}, another node "
                    f"{known_before}",
                )
            self._known[key] = (batch, before or known_before)
            before = key


class _Commit(NamedTuple):
    batch: LoggedBatch
    epoch: int  # of the leader that committed it, or a later one


class StateMachineSafety:
    """What one node has committed, all have at that offset, and it stays (raft, 5.4.3). Nothing else is applied."""

    def __init__(self) -> None:
        self.commits: list[_Commit] = []
        self._committed: dict[int, LoggedBatch] = {}
        self._kept: dict[int, int] = {}  # the end of the committed batches that each node had on disk
        self._images: dict[int, MetadataImage] = {}

    def observe(self, view: NodeView) -> None:
        kept = self._kept.get(view.node_id, 0)
        if view.log_end_offset < kept:
            raise QuorumViolation(
                STATE_MACHINE_SAFETY,
                f"the log of node {view.node_id} ends at {view.log_end_offset}: it has lost committed records before "
                f"{kept}",
            )
        end = max(kept, min(view.high_watermark, view.durable_end))
        committed = [batch for batch in view.batches if batch.next_offset <= end]
        for batch in committed:
            known = self._committed.get(batch.base_offset)
            if known is None:
                self._committed[batch.base_offset] = batch
                self.commits.append(_Commit(batch, committed[-1].epoch))
            elif known != batch:
                raise QuorumViolation(
                    STATE_MACHINE_SAFETY, f"node {view.node_id} has committed {batch}, another node {known}"
                )
        self._kept[view.node_id] = end

    def observe_image(
        self, node_id: int, old: MetadataImage, new: MetadataImage, high_watermark: int
    ) -> None:
        if new.offset >= high_watermark:
            raise QuorumViolation(
                STATE_MACHINE_SAFETY,
                f"node {node_id} published the records up to {new.offset}, its high watermark is {high_watermark}",
            )
        if new.offset < old.offset:
            raise QuorumViolation(
                STATE_MACHINE_SAFETY, f"node {node_id} went back from offset {old.offset} to {new.offset}"
            )
        known = self._images.get(new.offset)
        if known is None:
            validate_image(new)
            self._images[new.offset] = new
        elif known != new:
            raise QuorumViolation(
                STATE_MACHINE_SAFETY,
                f"node {node_id} published other metadata at offset {new.offset} than another node",
            )


class LeaderCompleteness:
    """A batch that is committed in an epoch is in the logs of the leaders of all later epochs (raft, 5.4)."""

    def __init__(self, commits: Sequence[_Commit]) -> None:
        self._commits = commits
        self._checked = 0
        # By epoch: the first offset in the log of its leader when it was elected, and all batches.
        self._elected: dict[int, tuple[int, frozenset[LoggedBatch]]] = {}

    def observe(self, view: NodeView) -> None:
        for commit in self._commits[self._checked :]:
            for epoch in self._elected:
                self._check(commit, epoch)
        self._checked = len(self._commits)
        if view.is_leader and view.epoch not in self._elected:
            start = view.batches[0].base_offset if view.batches else view.log_end_offset
            self._elected[view.epoch] = start, frozenset(view.batches)
            for commit in self._commits:
                self._check(commit, view.epoch)

    def _check(self, commit: _Commit, epoch: int) -> None:
        start, batches = self._elected[epoch]
        if commit.epoch < epoch and commit.batch.base_offset >= start and commit.batch not in batches:
            raise QuorumViolation(
                LEADER_COMPLETENESS, f"the leader of epoch {epoch} was elected without {commit.batch}"
            )


class CommitRule:
    """A leader commits batches of earlier epochs only together with one of its own (raft, 5.4.2)."""

    def __init__(self) -> None:
        self._high_watermarks: dict[int, int] = {}

    def observe(self, view: NodeView) -> None:
        before = self._high_watermarks.get(view.node_id, 0)
        self._high_watermarks[view.node_id] = view.high_watermark
        if not view.is_leader or view.high_watermark <= before:
            return
        last = next(
            (batch for batch in reversed(view.batches) if batch.next_offset <= view.high_watermark), None
        )
        if last is not None and last.epoch != view.epoch:
            raise QuorumViolation(
                COMMIT_RULE,
                f"node {view.node_id}, the leader of epoch {view.epoch}, committed {last} and nothing of its own",
            )


class Pauses:
    """A node that makes no progress pauses before it tries again."""

    def __init__(self, what: str, count_max: int) -> None:
        self._what = what
        self._count_max = count_max
        self._counts: dict[int, tuple[int, int]] = {}  # by node: a second of its clock, and the count in it

    def count(self, node_id: int, now_ms: int, change: int = 1) -> None:
        second, count = self._counts.get(node_id, (0, 0))
        count = change if second != now_ms // 1000 else count + change
        self._counts[node_id] = now_ms // 1000, count
        if count > self._count_max:
            raise QuorumViolation(
                PAUSES, f"node {node_id}: more than {self._count_max} {self._what} in one second"
            )


class QuorumCheckers:
    """Keeps the first violation, because an exception in a node's code would look like a failure of the node."""

    def __init__(self) -> None:
        self.violation: QuorumViolation | None = None
        self.observations = 0
        self._elections = ElectionSafety()
        self._votes = VoteDurability()
        self._state_machine = StateMachineSafety()
        self._of_views = (
            self._votes,
            LogMatching(),
            self._state_machine,
            LeaderCompleteness(self._state_machine.commits),
            CommitRule(),
        )
        self._requests = Pauses("requests without success", _REQUESTS_IN_VAIN_MAX)
        self._hard_states = Pauses("changes of the hard state", _HARD_STATES_MAX)

    def observe_step(self, view: NodeView, node: RaftNode) -> None:
        self.observations += 1
        try:
            if view.is_leader:
                self._elections.observe(view.epoch, view.node_id)
            for checker in self._of_views:
                checker.observe(view)
            node.validate()
        except AssertionError as error:
            self.fail(error, f"node {view.node_id}")

    def observe_hard_state(self, node_id: int, now_ms: int) -> None:
        """The node has written another hard state. `now_ms` is the time of its clock."""
        try:
            self._hard_states.count(node_id, now_ms)
        except QuorumViolation as error:
            self.fail(error)

    def observe_message(
        self, source: int, target: int, request: Request, response: Response | None, now_ms: int = 0
    ) -> None:
        """`response` is None when the request is about to be sent. `now_ms` is the time of the source's clock."""
        self.observations += 1
        try:
            if response is None or response.error is ErrorCode.none:
                self._requests.count(source, now_ms, 1 if response is None else -1)
            if response is not None:
                self._votes.observe_response(target, response.epoch)
                if response.leader_id != NO_NODE:
                    self._elections.observe(response.epoch, response.leader_id)
            if isinstance(request, BeginQuorumEpochRequest):
                self._elections.observe(request.epoch, request.leader_id)
            if isinstance(request, VoteRequest) and not request.is_pre_vote:
                if response is None:
                    self._votes.observe_vote(source, request.epoch, source)
                elif isinstance(response, VoteResponse) and response.is_granted:
                    self._votes.observe_vote(target, request.epoch, request.candidate_id)
        except QuorumViolation as error:
            self.fail(error)

    def observe_image(
        self, node_id: int, old: MetadataImage, new: MetadataImage, high_watermark: int
    ) -> None:
        self.observations += 1
        try:
            self._state_machine.observe_image(node_id, old, new, high_watermark)
        except AssertionError as error:
            self.fail(error, f"node {node_id}")

    def node_failed(self, node_id: int, error: Exception, *, has_disk_fault: bool) -> None:
        """A node may fail only if its disk does."""
        if not (has_disk_fault and isinstance(error, OSError)):
            self.fail(QuorumViolation(NODE_FAILURE, f"node {node_id} failed: {error!r}"))

    def fail(self, error: AssertionError, where: str = "") -> None:
        if self.violation is None:
            if not isinstance(error, QuorumViolation):
                error = QuorumViolation(INVARIANTS, f"{where}: {error}")
            self.violation = error

    def raise_violation(self) -> None:
        if self.violation is not None:
            raise self.violation
