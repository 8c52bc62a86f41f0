"""Each checker of the quorum, with histories that break its guarantee and histories that do not."""

from uuid import UUID

import pytest

from ottla.core.controller.image import MetadataImage
from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    EpochResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.settings import RaftSettings
from ottla.model.errors import ErrorCode
from ottla.sim.quorum_checkers import (
    COMMIT_RULE,
    ELECTION_SAFETY,
    INVARIANTS,
    LEADER_COMPLETENESS,
    LOG_MATCHING,
    NODE_FAILURE,
    PAUSES,
    STATE_MACHINE_SAFETY,
    VOTE_DURABILITY,
    NodeView,
    QuorumCheckers,
)
from ottla.sim.quorum_log_view import LoggedBatch

# Batches of one record: offset, epoch.
Log = list[tuple[int, int]]


class History:
    def __init__(self) -> None:
        self.checkers = QuorumCheckers()

    def step(
        self,
        node_id: int,
        epoch: int,
        log: Log,
        high_watermark: int = 0,
        *,
        leads: bool = False,
        durable_epoch: int | None = None,
    ) -> None:
        batches = [LoggedBatch(offset, offset + 1, batch_epoch, 0) for offset, batch_epoch in log]
        end = batches[-1].next_offset if batches else 0
        durable_epoch = epoch if durable_epoch is None else durable_epoch
        view = NodeView(node_id, epoch, leads, high_watermark, end, durable_epoch, batches)
        self.checkers.observe_step(view, _sound_node())

    def vote(self, voter: int, epoch: int, candidate: int) -> None:
        request = VoteRequest(epoch, candidate, OffsetAndEpoch(0, 0), is_pre_vote=False)
        response = VoteResponse(epoch, NO_NODE, is_granted=True)
        self.checkers.observe_message(candidate, voter, request, response)

    @property
    def broken(self) -> str | None:
        violation = self.checkers.violation
        return None if violation is None else violation.checker


def _sound_node() -> RaftNode:
    return RaftNode(
        1,
        (1, 2, 3),
        hard_state=HardState(),
        log=LogState(),
        settings=RaftSettings(),
        random_below=lambda limit: 0,
        now_ms=0,
    )


@pytest.fixture
def history() -> History:
    return History()


def test_two_leaders_of_one_epoch_break_election_safety(history: History) -> None:
    history.step(1, 1, [(0, 1)], leads=True)
    history.step(2, 2, [(0, 1), (1, 2)], leads=True)
    assert history.broken is None
    history.step(3, 2, [(0, 1), (1, 2)], leads=True)
    assert history.broken == ELECTION_SAFETY


def test_messages_that_name_two_leaders_of_one_epoch_break_election_safety(history: History) -> None:
    request = BeginQuorumEpochRequest(4, 1)
    history.checkers.observe_message(1, 2, request, None)
    history.checkers.observe_message(1, 2, request, EpochResponse(4, NO_NODE))
    assert history.broken is None
    history.checkers.observe_message(1, 2, request, EpochResponse(4, 3))
    assert history.broken == ELECTION_SAFETY


def test_a_second_vote_in_an_epoch_breaks_vote_durability(history: History) -> None:
    history.vote(3, 1, 1)
    history.vote(3, 1, 1)
    history.vote(3, 2, 2)
    assert history.broken is None
    history.vote(3, 2, 1)
    assert history.broken == VOTE_DURABILITY


def test_a_candidate_votes_for_itself(history: History) -> None:
    request = VoteRequest(5, 3, OffsetAndEpoch(0, 0), is_pre_vote=False)
    history.checkers.observe_message(3, 1, request, None)
    history.vote(3, 5, 2)
    assert history.broken == VOTE_DURABILITY


def test_a_pre_vote_is_not_a_vote(history: History) -> None:
    for candidate in (1, 2):
        request = VoteRequest(1, candidate, OffsetAndEpoch(0, 0), is_pre_vote=True)
        history.checkers.observe_message(candidate, 3, request, VoteResponse(1, NO_NODE, is_granted=True))
    assert history.broken is None


def test_an_epoch_that_goes_back_breaks_vote_durability(history: History) -> None:
    history.step(1, 3, [])
    history.step(1, 2, [])
    assert history.broken == VOTE_DURABILITY


def test_an_epoch_that_was_never_durable_may_be_forgotten_unless_a_response_had_it(history: History) -> None:
    history.step(1, 3, [], durable_epoch=2)
    history.step(1, 2, [])
    assert history.broken is None
    history.vote(1, 3, 2)
    history.step(1, 2, [])
    assert history.broken == VOTE_DURABILITY


def test_many_failed_requests_without_pauses_are_found(history: History) -> None:
    request = VoteRequest(1, 2, OffsetAndEpoch(0, 0), is_pre_vote=True)
    rejected = VoteResponse(1, NO_NODE, is_granted=False, error=ErrorCode.fenced_leader_epoch)
    for now_ms in range(0, 10_000, 5):
        history.checkers.observe_message(2, 1, request, None, now_ms)
        history.checkers.observe_message(2, 1, request, rejected, now_ms)
    assert history.broken is None
    for _ in range(500):
        history.checkers.observe_message(2, 1, request, None, 20_000)
        history.checkers.observe_message(2, 1, request, VoteResponse(1, NO_NODE, is_granted=True), 20_000)
    assert history.broken is None
    for _ in range(500):
        history.checkers.observe_message(2, 1, request, None, 30_000)
        history.checkers.observe_message(2, 1, request, rejected, 30_000)
    assert history.broken == PAUSES


def test_many_changes_of_the_hard_state_are_found(history: History) -> None:
    for now_ms in range(0, 10_000, 20):
        history.checkers.observe_hard_state(1, now_ms)
    assert history.broken is None
    for _ in range(100):
        history.checkers.observe_hard_state(1, 20_000)
    assert history.broken == PAUSES


def test_logs_with_different_batches_before_a_common_one_break_log_matching(history: History) -> None:
    history.step(1, 3, [(0, 1), (1, 1), (2, 3)])
    history.step(2, 3, [(0, 1), (1, 2)])
    assert history.broken is None
    history.step(2, 3, [(0, 1), (1, 2), (2, 3)])
    assert history.broken == LOG_MATCHING


def test_a_log_that_begins_after_a_snapshot_matches(history: History) -> None:
    history.step(1, 3, [(0, 1), (1, 1), (2, 3)])
    history.step(2, 3, [(2, 3)])
    history.step(1, 3, [(0, 1), (1, 1), (2, 3), (3, 3)])
    history.step(2, 3, [(2, 3), (3, 3)])
    assert history.broken is None


def test_a_leader_without_a_committed_batch_breaks_leader_completeness(history: History) -> None:
    history.step(1, 1, [(0, 1), (1, 1)], high_watermark=2, leads=True)
    history.step(2, 2, [(0, 1), (1, 2)], leads=True)
    assert history.broken == LEADER_COMPLETENESS


def test_a_commit_that_shows_after_the_election_of_a_leader_without_it_counts_too(history: History) -> None:
    history.step(2, 2, [(0, 1), (1, 2)], leads=True)
    history.step(1, 1, [(0, 1), (1, 1)], high_watermark=2)
    assert history.broken == LEADER_COMPLETENESS


def test_a_batch_that_a_later_leader_commits_may_be_missing_in_a_leader_before(history: History) -> None:
    """Figure 8 of the raft paper: the batch of epoch 1 is committed in epoch 3."""
    history.step(2, 2, [(0, 2)], leads=True)
    history.step(1, 3, [(0, 1), (1, 3)], high_watermark=2, leads=True)
    assert history.broken is None


def test_a_leader_that_commits_only_a_batch_of_an_earlier_epoch_breaks_the_commit_rule(
    history: History,
) -> None:
    history.step(1, 1, [(0, 1)])
    history.step(1, 2, [(0, 1), (1, 2)], high_watermark=1, leads=True)
    assert history.broken == COMMIT_RULE


def test_different_committed_batches_break_state_machine_safety(history: History) -> None:
    history.step(1, 2, [(0, 1)], high_watermark=1)
    history.step(2, 2, [(0, 2)], high_watermark=0)
    assert history.broken is None
    history.step(2, 2, [(0, 2)], high_watermark=1)
    assert history.broken == STATE_MACHINE_SAFETY


def test_a_committed_batch_that_a_node_loses_breaks_state_machine_safety(history: History) -> None:
    history.step(1, 1, [(0, 1), (1, 1)], high_watermark=1)
    history.step(1, 1, [(0, 1)])
    assert history.broken is None
    history.step(1, 1, [])
    assert history.broken == STATE_MACHINE_SAFETY


def test_a_leader_may_lose_what_only_others_have_on_disk(history: History) -> None:
    history.step(1, 1, [(0, 1)], high_watermark=2, leads=True)
    history.step(1, 1, [(0, 1)])
    assert history.broken is None


def image(offset: int, **features: int) -> MetadataImage:
    return MetadataImage(offset=offset, epoch=1, features=features)


def test_an_image_at_the_high_watermark_breaks_state_machine_safety(history: History) -> None:
    history.checkers.observe_image(1, MetadataImage(), image(4), high_watermark=5)
    assert history.broken is None
    history.checkers.observe_image(1, MetadataImage(), image(5), high_watermark=5)
    assert history.broken == STATE_MACHINE_SAFETY


def test_different_images_at_one_offset_break_state_machine_safety(history: History) -> None:
    history.checkers.observe_image(1, MetadataImage(), image(4, a=1), high_watermark=5)
    history.checkers.observe_image(2, MetadataImage(), image(4, a=1), high_watermark=5)
    assert history.broken is None
    history.checkers.observe_image(3, MetadataImage(), image(4, a=2), high_watermark=5)
    assert history.broken == STATE_MACHINE_SAFETY


def test_an_image_that_goes_back_breaks_state_machine_safety(history: History) -> None:
    history.checkers.observe_image(1, image(4), image(3), high_watermark=5)
    assert history.broken == STATE_MACHINE_SAFETY


def test_an_image_that_contradicts_itself_breaks_the_invariants(history: History) -> None:
    wrong = MetadataImage(offset=1, epoch=1, topics_by_id={UUID(int=1): None})  # type: ignore[dict-item]
    history.checkers.observe_image(1, MetadataImage(), wrong, high_watermark=5)
    assert history.broken == INVARIANTS


def test_a_node_that_contradicts_itself_breaks_the_invariants(history: History) -> None:
    node = _sound_node()
    node.high_watermark = 7
    history.checkers.observe_step(NodeView(1, 0, False, 7, 7, 0, []), node)
    assert history.broken == INVARIANTS


def test_a_node_may_fail_only_because_of_its_disk(history: History) -> None:
    history.checkers.node_failed(1, OSError("full"), has_disk_fault=True)
    assert history.broken is None
    history.checkers.node_failed(1, OSError("full"), has_disk_fault=False)
    assert history.broken == NODE_FAILURE


def test_the_first_violation_is_kept(history: History) -> None:
    history.vote(3, 2, 2)
    history.vote(3, 2, 1)
    history.step(1, 1, [(0, 1)], leads=True)
    history.step(2, 1, [(0, 1)], leads=True)
    assert history.broken == VOTE_DURABILITY
    with pytest.raises(AssertionError, match="node 3 voted for 2 and for 1 in epoch 2"):
        history.checkers.raise_violation()
