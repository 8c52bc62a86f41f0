"""Who may vote and who may stand for election while voters change, so that no epoch has two leaders (KIP-853)."""

from uuid import UUID

from tests.unit.core.raft.quorum import SETTINGS, dynamic_voter
from tests.unit.core.raft.test_membership import ChangingQuorum, lone_node, run, voter_set

from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.membership import remove_voter, upgrade_kraft_version
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import Follower, Prospective, Unattached
from ottla.core.raft.voter_set import KRaftVersion, LoggedMembership, VoterHistory, VoterSet
from ottla.model.errors import ErrorCode

OTHER_DIRECTORY = UUID(int=77)
LEVEL = LoggedMembership(1, KRaftVersion(1))
REAL_VOTE = VoteRequest(5, 2, OffsetAndEpoch(9, 4), is_pre_vote=False, candidate_directory_id=UUID(int=2))


def test_a_former_leader_that_is_no_voter_any_more_grants_no_vote_in_the_epoch_that_it_led() -> None:
    """It has voted for itself in it: the second vote could elect a second leader of the epoch."""
    node = lone_node(
        [LEVEL, LoggedMembership(2, voter_set(1, 2))], LogState(0, 3, [(4, 0)]), HardState(5, leader_id=4)
    )
    assert not node.on_vote(REAL_VOTE, 0).is_granted
    run(node, 0)
    assert not node.on_vote(REAL_VOTE, 0).is_granted
    assert node.on_vote(REAL_VOTE._replace(epoch=6), 0).is_granted


def test_a_replaced_directory_does_not_stand_for_election_beside_the_one_that_votes_now() -> None:
    """Otherwise voters that know the leader only by its id would take one of the two for the other."""
    reformatted = voter_set(1, 2).with_voter(dynamic_voter(4)._replace(directory_id=OTHER_DIRECTORY))
    logged = [
        LEVEL,
        LoggedMembership(2, voter_set(1, 2, 4)),
        LoggedMembership(3, voter_set(1, 2)),
        LoggedMembership(4, reformatted),
    ]
    node = lone_node(logged, LogState(0, 5, [(4, 0)]), HardState(4, leader_id=1))
    assert not node.may_stand
    for now_ms in (0, 10_000, 100_000):
        assert not any(isinstance(message.request, VoteRequest) for message in run(node, now_ms))


def with_pending_snapshot(*voters: int) -> RaftNode:
    """Node 4 of the voters has fetched the last part of a snapshot, which is not written yet."""
    logged = [LEVEL, LoggedMembership(2, voter_set(*voters))]
    node = lone_node(logged, LogState(0, 3, [(5, 0)]), HardState(5, leader_id=1))
    for request in (FetchRequest, FetchSnapshotRequest):
        (fetch,) = run(node, 0)
        assert isinstance(fetch.request, request)
        snapshot = OffsetAndEpoch(9, 5)
        response: FetchResponse | FetchSnapshotResponse = FetchResponse(5, 1, snapshot=snapshot)
        if request is FetchSnapshotRequest:
            response = FetchSnapshotResponse(5, 1, snapshot, size=1, position=0, data=b"x")
        node.on_response(fetch.number, 1, response, 0)
    return node


def test_an_election_is_not_counted_over_the_voters_before_a_snapshot() -> None:
    """A majority of the old voters need not have a node in common with one of the new voters."""
    node = with_pending_snapshot(1, 2, 4)
    node.tick(100_000)
    assert isinstance(node.role, Prospective)
    ready = node.ready(100_000)
    assert ready is not None
    assert ready.chunk is not None
    asked = [message for message in ready.messages if isinstance(message.request, VoteRequest)]
    written = ready.chunk._replace(membership=(KRaftVersion(1), voter_set(1, 2, 3, 4, 5)))
    node.advance(ready._replace(chunk=written))
    node.validate()
    assert isinstance(node.role, Follower)
    for message in asked:
        node.on_response(message.number, message.to, VoteResponse(node.epoch, -1, is_granted=True), 100_001)
    assert isinstance(node.role, Follower)


def test_a_candidate_drops_a_snapshot_that_is_not_written_yet() -> None:
    node = with_pending_snapshot(1, 2, 4)
    node._stand_for_election(100_000)
    ready = node.ready(100_000)
    assert ready is not None
    assert ready.chunk is None
    assert all(message.request.log_end == OffsetAndEpoch(3, 5) for message in ready.messages
               if isinstance(message.request, VoteRequest))  # fmt: skip


def test_the_only_voter_does_not_lead_with_a_snapshot_that_would_replace_its_log() -> None:
    node = with_pending_snapshot(4)
    node.on_end_quorum_epoch(EndQuorumEpochRequest(5, 1, (4,)), 0)
    node.tick(0)
    ready = node.ready(0)
    assert ready is not None
    assert not (node.is_leader and ready.chunk is not None)


def test_the_last_voter_follows_the_leader_that_removes_itself_until_that_resigns() -> None:
    """Otherwise the client that removes one of two voters gets an error instead of the result."""
    quorum = ChangingQuorum((1, 2))
    change = remove_voter(quorum[1].node, dynamic_voter(1).key, quorum.now_ms, timeout_ms=1_000)
    for _ in range(20):
        quorum.now_ms += 1
        for member in quorum.members.values():
            member.node.tick(quorum.now_ms)
        quorum.deliver(1)
    assert change.error is ErrorCode.none
    quorum.now_ms += 100_000
    quorum[2].node.tick(quorum.now_ms)
    quorum.deliver()
    assert quorum[2].node.is_leader
    assert quorum.voters_of(2) == (2,)


def test_an_observer_that_a_snapshot_makes_a_voter_stands_when_its_timeout_expires() -> None:
    node = with_pending_snapshot(1, 2)
    vote = REAL_VOTE._replace(epoch=7, log_end=OffsetAndEpoch(9, 5))
    assert node.on_vote(vote, 0).is_granted  # the candidate never becomes the leader
    ready = node.ready(0)
    assert ready is not None
    assert ready.chunk is not None
    written = ready.chunk._replace(membership=(KRaftVersion(1), voter_set(1, 2, 4)))
    node.advance(ready._replace(chunk=written))
    run(node, 0)
    assert isinstance(node.role, Unattached)
    assert any(isinstance(message.request, VoteRequest) for message in run(node, 100_000))


def test_a_voter_whose_log_does_not_name_it_yet_lets_others_stand_when_the_leader_is_gone() -> None:
    """Its vote may be the one that they need, and it does not stand itself."""
    node = lone_node(
        [LEVEL, LoggedMembership(2, voter_set(1, 2, 3))], LogState(0, 3, [(5, 0)]), HardState(5, leader_id=1)
    )
    (fetch,) = run(node, 0)
    node.on_response(fetch.number, 1, FetchResponse(5, 1, 3), 0)
    asked = VoteRequest(5, 2, OffsetAndEpoch(9, 5), is_pre_vote=True)
    run(node, 1_000)
    assert not node.on_vote(asked, 1_000).is_granted
    run(node, SETTINGS.fetch_timeout_ms)
    assert node.on_vote(asked, SETTINGS.fetch_timeout_ms).is_granted


def test_a_node_with_an_empty_log_does_not_vote_because_its_id_was_found() -> None:
    """It may have a new disk. Two of them would be a majority that has lost everything."""
    node = RaftNode(
        1,
        VoterHistory(VoterSet.of_ids((1, 2, 3)), is_fixed=False),
        hard_state=HardState(),
        log=LogState(),
        settings=SETTINGS,
        random_below=lambda _: 0,
        now_ms=0,
        own=dynamic_voter(1),
    )
    assert not node.is_voter
    assert not any(isinstance(message.request, VoteRequest) for message in run(node, 100_000))


def test_the_id_of_a_bootstrap_server_is_no_leader() -> None:
    node = lone_node([], LogState(), HardState())
    assert node.on_begin_quorum_epoch(BeginQuorumEpochRequest(3, -2), 0) == EpochResponse(
        0, -1, ErrorCode.invalid_request
    )


# -- raising kraft.version


def static_leader(kraft_versions: tuple[int, int] = (0, 1)) -> tuple[RaftNode, VoterSet]:
    """The only voter, which leads, at kraft.version 0."""
    own = dynamic_voter(1)._replace(kraft_versions=kraft_versions)
    node = RaftNode(
        1,
        VoterHistory(VoterSet.of_ids((1,))),
        hard_state=HardState(),
        log=LogState(),
        settings=SETTINGS,
        random_below=lambda _: 0,
        now_ms=0,
        own=own,
    )
    run(node, 0)
    assert node.is_leader
    return node, VoterSet.of([own])


def test_kraft_version_is_raised_once() -> None:
    node, voters = static_leader()
    assert upgrade_kraft_version(node, voters, 0, timeout_ms=1_000).error is None
    run(node, 0)
    other = VoterSet.of([dynamic_voter(1)._replace(directory_id=OTHER_DIRECTORY)])
    again = upgrade_kraft_version(node, other, 0, timeout_ms=1_000)
    assert again.error is ErrorCode.invalid_update_version
    assert node.history.latest == voters


def test_kraft_version_is_not_raised_above_what_a_voter_supports() -> None:
    node, voters = static_leader(kraft_versions=(0, 0))
    refused = upgrade_kraft_version(node, voters, 0, timeout_ms=1_000)
    assert refused.error is ErrorCode.invalid_update_version
    assert not node.history.allows_changes
