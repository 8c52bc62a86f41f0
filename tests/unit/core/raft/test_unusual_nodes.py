"""Nodes from elsewhere: a former voter, a rebuilt quorum, directories that Kafka formatted, hostile requests."""

import pytest

from ottla.core.raft.errors import DivergedBelowCommit
from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import (
    EPOCH_MAX,
    NO_NODE,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Outbound,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import NEVER_MS, Prospective, Unattached, Votes
from ottla.core.raft.settings import RaftSettings
from ottla.model.errors import ErrorCode

BOOTSTRAP = OffsetAndEpoch(0, 0)
HOUR_MS = 3_600_000


def node(
    node_id: int, voters: tuple[int, ...], hard_state: HardState, log: LogState | None = None
) -> RaftNode:
    return RaftNode(
        node_id,
        voters,
        hard_state=hard_state,
        log=log or LogState(),
        settings=RaftSettings(),
        random_below=lambda bound: 0,
        now_ms=0,
    )


def run(raft: RaftNode, now_ms: int = 0) -> list[Outbound]:
    messages: list[Outbound] = []
    while (ready := raft.ready(now_ms)) is not None:
        messages += ready.messages
        raft.advance(ready)
        raft.validate()
    return messages


def leader(log: LogState | None = None) -> RaftNode:
    """The only voter, elected."""
    raft = node(1, (1,), HardState(), log)
    raft.tick(0)
    run(raft)
    return raft


def test_a_former_leader_that_is_no_longer_a_voter_never_stands_for_election() -> None:
    raft = node(1, (2, 3, 4), HardState(5, leader_id=1))
    assert (raft.leader_id, raft.epoch) == (NO_NODE, 5)
    for now_ms in (0, HOUR_MS):
        raft.tick(now_ms)
        assert not any(isinstance(message.request, VoteRequest) for message in run(raft, now_ms))
        assert isinstance(raft.role, Unattached)


def test_an_observer_that_hears_of_a_later_epoch_never_stands_for_election() -> None:
    raft = node(1, (2, 3, 4), HardState(5))
    raft.role = Unattached(0)  # whatever its deadline was
    raft.on_vote(VoteRequest(6, 2, OffsetAndEpoch(0, 0), is_pre_vote=False), 0)
    assert isinstance(raft.role, Unattached)
    assert raft.role.deadline_ms == NEVER_MS


def test_only_votes_of_voters_count() -> None:
    assert not Votes((2, 3, 4), {1: True, 2: True}).is_won
    assert Votes((2, 3, 4), {2: True, 3: True}).is_won


def test_a_snapshot_below_the_high_watermark_does_not_replace_committed_records() -> None:
    """As with a truncation: the quorum has lost its log, or clusters were mixed up."""
    log = LogState(1500, 1500, snapshots=[OffsetAndEpoch(1500, 3)])
    log.append(3, 2000)
    follower = node(7, (1,), HardState(9, leader_id=1), log)
    (fetch,) = run(follower)
    response = FetchResponse(9, 1, 300, snapshot=OffsetAndEpoch(300, 9))
    with pytest.raises(DivergedBelowCommit, match="to offset 300, below the high watermark 1500"):
        follower.on_response(fetch.number, 1, response, 1)
    assert (follower.high_watermark, follower.log.end_offset) == (1500, 2000)


def test_an_empty_follower_does_not_fetch_the_empty_snapshot_that_kafka_formats() -> None:
    """Installed, it would leave the follower at offset 0, which asked for it."""
    raft = leader(LogState(snapshots=[BOOTSTRAP]))
    decision = raft.on_fetch(FetchRequest(raft.epoch, 7, 0, 0, 0), 1)
    assert decision.reads_log
    assert decision.response.snapshot is None
    refused = raft.on_fetch_snapshot(FetchSnapshotRequest(raft.epoch, 7, BOOTSTRAP, 0), 1)
    assert refused.error is ErrorCode.snapshot_not_found


def test_an_empty_follower_fetches_a_snapshot_with_records() -> None:
    newest = OffsetAndEpoch(100, 1)
    raft = leader(LogState(100, 100, snapshots=[BOOTSTRAP, newest]))
    assert raft.on_fetch(FetchRequest(raft.epoch, 7, 0, 0, 0), 1).response.snapshot == newest


def test_a_request_with_the_last_possible_epoch_is_rejected() -> None:
    """The node could never be elected after it."""
    raft, end = node(1, (1, 2, 3), HardState(5)), OffsetAndEpoch(0, 0)
    for is_pre_vote in (False, True):
        vote = raft.on_vote(VoteRequest(EPOCH_MAX, 2, end, is_pre_vote), 0)
        assert vote.error is ErrorCode.invalid_request
    begin = raft.on_begin_quorum_epoch(BeginQuorumEpochRequest(EPOCH_MAX, 2), 0)
    assert begin.error is ErrorCode.invalid_request
    ended = raft.on_end_quorum_epoch(EndQuorumEpochRequest(EPOCH_MAX, 2, ()), 0)
    assert ended.error is ErrorCode.invalid_request
    assert raft.epoch == 5


def test_a_response_with_the_last_possible_epoch_is_ignored() -> None:
    raft = node(1, (1, 2, 3), HardState(5))
    raft.tick(HOUR_MS)
    asked = run(raft, HOUR_MS)
    assert isinstance(raft.role, Prospective)
    raft.on_response(
        asked[0].number, asked[0].to, VoteResponse(EPOCH_MAX, NO_NODE, is_granted=False), HOUR_MS
    )
    assert raft.epoch == 5
