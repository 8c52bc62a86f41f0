"""Changes of the voters, one event after the other (KIP-853)."""

from random import Random
from uuid import UUID

import pytest
from tests.unit.core.raft.quorum import SETTINGS, Disk, Member, bootstrap_disk, dynamic_voter
from tests.unit.core.raft.test_elections import Quorum

from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.membership import (
    ADDITION_TIMEOUT_MS_MAX,
    add_voter,
    remove_voter,
    update_voter,
    upgrade_kraft_version,
)
from ottla.core.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Outbound,
    ReplicatedBatch,
    VoteRequest,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState, LeaderChange, MembershipChange
from ottla.core.raft.roles import Follower, Leader, Prospective, Resigned, Unattached
from ottla.core.raft.voter_set import (
    KRaftVersion,
    LoggedMembership,
    ReplicaKey,
    VoterEndpoint,
    VoterHistory,
    VoterSet,
)
from ottla.model.errors import ErrorCode

TIMEOUT_MS = 1_000
OTHER_DIRECTORY = UUID(int=77)


def voter_set(*ids: int) -> VoterSet:
    return VoterSet.of(map(dynamic_voter, ids))


class ChangingQuorum(Quorum):
    """Node 1 leads the voters `first`. The nodes `others` are observers."""

    def __init__(self, first: tuple[int, ...], others: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.members = {
            node_id: Member(
                node_id,
                first,
                Random(node_id),
                bootstrap_disk(*first) if node_id in first else Disk(),
                dynamic_voter(node_id),
            )
            for node_id in (*first, *others)
        }
        self.elect(1)

    def voters_of(self, node_id: int) -> tuple[int, ...]:
        return self[node_id].node.voters


def test_a_leader_writes_the_voters_of_the_bootstrap_snapshot_to_the_log() -> None:
    quorum = ChangingQuorum((1,))
    first, second = quorum[1].disk.batches
    assert first.data == LeaderChange(1, (1,), (1,))
    assert second.data == MembershipChange((KRaftVersion(1), voter_set(1)))


def test_a_leader_with_new_endpoints_writes_them_at_the_start_of_its_epoch() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    moved = dynamic_voter(2)._replace(endpoints=(VoterEndpoint("CONTROLLER", "elsewhere", 9093),))
    quorum[2].own = moved
    quorum[2].start(quorum.now_ms)
    quorum.cut.add(1)
    quorum[3].node.role.deadline_ms = quorum.now_ms  # it no longer hears from node 1
    quorum.time_out(3)
    quorum.elect(2)
    assert quorum[3].node.history.latest.get(2) == moved


def test_a_voter_is_added_when_it_has_caught_up() -> None:
    quorum = ChangingQuorum((1,), (2,))
    leader = quorum[1].node
    quorum.cut.add(2)
    quorum.now_ms += 10_000
    change = add_voter(leader, dynamic_voter(2), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum.deliver()
    assert change.error is None
    assert quorum.voters_of(1) == (1,)
    quorum.cut.clear()
    quorum.now_ms += 500
    quorum.deliver()
    quorum[2].node.tick(quorum.now_ms)
    quorum.deliver()
    assert change.error is ErrorCode.none
    assert quorum.voters_of(1) == quorum.voters_of(2) == (1, 2)
    assert leader.high_watermark == leader.log.end_offset


def test_an_addition_times_out_if_the_new_voter_does_not_catch_up() -> None:
    quorum = ChangingQuorum((1,))
    leader = quorum[1].node
    change = add_voter(leader, dynamic_voter(2), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert leader.next_tick_ms() <= quorum.now_ms + TIMEOUT_MS
    leader.tick(quorum.now_ms + TIMEOUT_MS)
    assert change.error is ErrorCode.request_timed_out
    assert quorum.voters_of(1) == (1,)
    again = add_voter(leader, dynamic_voter(2), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert again.error is None, "the next change may begin"


def test_a_removal_and_an_update_end_an_addition_that_waits() -> None:
    """A new voter may never catch up, and a dead voter must be removed all the same."""
    quorum = ChangingQuorum((1, 2, 3))
    leader = quorum[1].node
    for urgent in (
        lambda: remove_voter(leader, dynamic_voter(3).key, quorum.now_ms, timeout_ms=TIMEOUT_MS).error,
        lambda: update_voter(leader, dynamic_voter(2)._replace(kraft_versions=(0, 2)), quorum.now_ms),
    ):
        addition = add_voter(leader, dynamic_voter(9), quorum.now_ms, timeout_ms=TIMEOUT_MS)
        other = add_voter(leader, dynamic_voter(8), quorum.now_ms, timeout_ms=TIMEOUT_MS)
        assert other.error is ErrorCode.request_timed_out
        assert addition.error is None, "an addition waits for the one before"
        assert urgent() is None
        assert addition.error is ErrorCode.request_timed_out
        quorum.deliver()
        quorum.now_ms += 500
        quorum.deliver()
    assert quorum.voters_of(1) == (1, 2)


def test_a_rejected_removal_does_not_end_an_addition() -> None:
    quorum = ChangingQuorum((1, 2))
    leader = quorum[1].node
    addition = add_voter(leader, dynamic_voter(9), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    unknown = remove_voter(leader, dynamic_voter(7).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert unknown.error is ErrorCode.voter_not_found
    assert addition.error is None


def test_an_addition_waits_a_minute_at_most() -> None:
    quorum = ChangingQuorum((1,))
    change = add_voter(quorum[1].node, dynamic_voter(2), quorum.now_ms, timeout_ms=2**31 - 1)
    quorum[1].node.tick(quorum.now_ms + ADDITION_TIMEOUT_MS_MAX)
    assert change.error is ErrorCode.request_timed_out


def test_a_node_with_static_voters_follows_a_leader_that_was_added_later() -> None:
    """It does not have the records yet that raised kraft.version and added node 4."""
    node = RaftNode(
        3,
        VoterHistory(VoterSet.of_ids((1, 2, 3))),
        hard_state=HardState(5, leader_id=1),
        log=LogState(0, 10, [(5, 0)]),
        settings=SETTINGS,
        random_below=lambda _: 0,
        now_ms=0,
        own=dynamic_voter(3),
    )
    response = node.on_begin_quorum_epoch(BeginQuorumEpochRequest(6, 4), 0)
    assert response == (6, 4, ErrorCode.none)
    (fetch,) = run(node, 0)
    assert (fetch.to, type(fetch.request)) == (4, FetchRequest)


def test_the_new_voters_count_as_soon_as_they_are_in_the_log() -> None:
    quorum = ChangingQuorum((1,), (2,))
    quorum.deliver()
    leader, committed = quorum[1].node, quorum[1].node.high_watermark
    quorum.cut.add(2)
    change = add_voter(leader, dynamic_voter(2), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum[1].run(quorum.now_ms)
    assert quorum.voters_of(1) == (1, 2)
    assert change.error is None
    assert leader.high_watermark == committed, "node 2 must have the record too"


def test_an_addition_need_not_wait_for_the_commit() -> None:
    quorum = ChangingQuorum((1,), (2,))
    quorum.deliver()
    quorum.cut.add(2)
    change = add_voter(
        quorum[1].node, dynamic_voter(2), quorum.now_ms, timeout_ms=TIMEOUT_MS, waits_for_commit=False
    )
    assert change.error is ErrorCode.none
    assert quorum.voters_of(1) == (1, 2)


def test_a_second_change_waits_until_the_first_is_committed() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    leader = quorum[1].node
    quorum.cut |= {2, 3}
    first = remove_voter(leader, dynamic_voter(3).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    second = remove_voter(leader, dynamic_voter(2).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert (first.error, second.error) == (None, ErrorCode.request_timed_out)
    leader.tick(quorum.now_ms + TIMEOUT_MS)
    assert first.error is ErrorCode.request_timed_out
    third = remove_voter(leader, dynamic_voter(2).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert third.error is ErrorCode.request_timed_out, "the record of the first is still not committed"
    assert quorum.voters_of(1) == (1, 2)


def test_a_new_leader_changes_nothing_before_it_has_committed_an_entry_of_its_epoch() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    quorum.cut.add(1)
    quorum[3].node.role.deadline_ms = quorum.now_ms
    quorum.time_out(3)
    quorum.time_out(2)
    for _ in range(3):  # the votes, but not the fetches after them
        if not quorum[2].node.is_leader:
            quorum.deliver(1)
    leader = quorum[2].node
    assert leader.is_leader
    assert isinstance(leader.role, Leader)
    if not leader.role.has_committed:
        change = remove_voter(leader, dynamic_voter(1).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
        assert change.error is ErrorCode.request_timed_out
    quorum.deliver()
    change = remove_voter(leader, dynamic_voter(1).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum.deliver()
    assert change.error is ErrorCode.none


def test_a_leader_that_removes_itself_does_not_count_itself_and_resigns_after_the_commit() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    leader, committed = quorum[1].node, quorum[1].node.high_watermark
    quorum.cut.add(3)
    change = remove_voter(leader, dynamic_voter(1).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum.deliver()
    assert leader.is_leader
    assert leader.high_watermark == committed, "only one of the two other voters has it"
    quorum.cut.clear()
    quorum.now_ms += 500
    quorum.deliver()
    assert change.error is ErrorCode.none
    leader.tick(quorum.now_ms)
    assert isinstance(leader.role, Resigned)
    quorum.deliver()
    quorum.time_out(3)
    quorum.elect(2)
    assert quorum.voters_of(2) == (2, 3)


def test_a_removed_node_with_the_longest_log_may_lead_but_does_not_add_itself_again() -> None:
    """Raft dissertation, 4.2.2: the other voters need its log, and do not elect a node with a shorter one."""
    quorum = ChangingQuorum((1, 2))
    quorum.cut.add(2)
    removal = remove_voter(quorum[1].node, dynamic_voter(1).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum[1].run(quorum.now_ms)
    quorum[1].start(quorum.now_ms)  # it crashes with the only copy of the record
    node = quorum[1].node
    assert (removal.error, node.is_voter, node.may_stand) == (None, False, True)
    quorum.cut.clear()
    quorum.now_ms += 10_000
    node.tick(quorum.now_ms)
    quorum.time_out(2)
    quorum.time_out(1)
    quorum.deliver()
    assert node.is_leader
    assert quorum.voters_of(1) == quorum.voters_of(2) == (2,)
    refused = add_voter(node, dynamic_voter(1), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    assert refused.error is ErrorCode.request_timed_out
    node.tick(quorum.now_ms)
    assert isinstance(node.role, Resigned)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (ReplicaKey(9, UUID(int=9)), ErrorCode.voter_not_found),
        (ReplicaKey(2, OTHER_DIRECTORY), ErrorCode.voter_not_found),
        (ReplicaKey(2), ErrorCode.voter_not_found),
    ],
)
def test_a_voter_is_removed_only_with_its_own_directory_id(key: ReplicaKey, error: ErrorCode) -> None:
    quorum = ChangingQuorum((1, 2, 3))
    assert remove_voter(quorum[1].node, key, 0, timeout_ms=TIMEOUT_MS).error is error
    assert quorum.voters_of(1) == (1, 2, 3)


def test_the_last_voter_is_not_removed() -> None:
    quorum = ChangingQuorum((1,))
    change = remove_voter(quorum[1].node, dynamic_voter(1).key, 0, timeout_ms=TIMEOUT_MS)
    assert change.error is ErrorCode.invalid_request
    assert quorum.voters_of(1) == (1,)


def test_an_id_that_votes_already_is_not_added_with_another_directory() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    new = dynamic_voter(3)._replace(directory_id=OTHER_DIRECTORY)
    assert add_voter(quorum[1].node, new, 0, timeout_ms=TIMEOUT_MS).error is ErrorCode.duplicate_voter


def test_a_node_without_the_kraft_version_of_the_cluster_is_not_added() -> None:
    quorum = ChangingQuorum((1,))
    old = dynamic_voter(2)._replace(kraft_versions=(0, 0))
    assert add_voter(quorum[1].node, old, 0, timeout_ms=TIMEOUT_MS).error is ErrorCode.invalid_request


def test_static_voters_do_not_change() -> None:
    quorum = Quorum()
    quorum.elect(1)
    leader = quorum[1].node
    assert remove_voter(leader, ReplicaKey(2), 0, timeout_ms=1).error is ErrorCode.unsupported_version
    assert add_voter(leader, dynamic_voter(4), 0, timeout_ms=1).error is ErrorCode.unsupported_version
    refusal = update_voter(leader, dynamic_voter(2), 0)
    assert refusal is not None
    assert refusal.error is ErrorCode.unsupported_version
    follower = quorum[2].node
    assert remove_voter(follower, ReplicaKey(2), 0, timeout_ms=1).error is ErrorCode.not_leader_or_follower


def test_a_fetch_from_another_directory_does_not_count_as_one_of_the_voter() -> None:
    quorum = ChangingQuorum((1, 2))
    leader = quorum[1].node
    leader.propose([b"x"])
    quorum[1].run(quorum.now_ms)
    committed, end = leader.high_watermark, leader.log.end
    fetch = FetchRequest(leader.epoch, 2, end.offset, end.epoch, directory_id=OTHER_DIRECTORY)
    leader.on_fetch(fetch, quorum.now_ms)
    assert leader.high_watermark == committed
    leader.on_fetch(fetch._replace(directory_id=UUID(int=2)), quorum.now_ms)
    assert leader.high_watermark == end.offset


def test_a_request_for_the_voter_with_the_disk_before_is_rejected() -> None:
    node = Member(2, (1, 2), Random(1), bootstrap_disk(1, 2), dynamic_voter(2)).node
    vote = VoteRequest(5, 1, OffsetAndEpoch(9, 1), is_pre_vote=False, voter_directory_id=OTHER_DIRECTORY)
    assert node.on_vote(vote, 0).error is ErrorCode.invalid_voter_key
    begin = BeginQuorumEpochRequest(5, 1, OTHER_DIRECTORY)
    assert node.on_begin_quorum_epoch(begin, 0).error is ErrorCode.invalid_voter_key
    assert node.epoch == 0


def test_a_vote_is_for_a_candidate_and_its_directory() -> None:
    node = Member(2, (1, 2), Random(1), bootstrap_disk(1, 2), dynamic_voter(2)).node
    vote = VoteRequest(5, 1, OffsetAndEpoch(9, 1), False, UUID(int=1), UUID(int=2))
    assert node.on_vote(vote, 0).is_granted
    assert node.hard_state.voted_directory_id == UUID(int=1)
    assert node.on_vote(vote, 0).is_granted
    assert not node.on_vote(vote._replace(candidate_directory_id=OTHER_DIRECTORY), 0).is_granted


def test_truncation_takes_a_voter_set_back() -> None:
    history = VoterHistory(
        VoterSet(()), [LoggedMembership(2, KRaftVersion(1)), LoggedMembership(3, voter_set(1))]
    )
    history.append(7, voter_set(1, 2))
    found = []
    for end_offset in (8, 7, 2):
        history.truncate_to(end_offset)
        found.append((history.latest.ids, history.latest_offset, history.kraft_version))
    assert found == [((1, 2), 7, 1), ((1,), 3, 1), ((), None, 0)]


def test_a_snapshot_has_the_voters_at_its_end() -> None:
    history = VoterHistory(
        VoterSet(()), [LoggedMembership(2, KRaftVersion(1)), LoggedMembership(3, voter_set(1))]
    )
    history.append(7, voter_set(1, 2))
    assert history.before(7) == (KRaftVersion(1), voter_set(1))
    assert history.before(8) == (KRaftVersion(1), voter_set(1, 2))
    history.discard_before(8)
    assert history.before(8) == (KRaftVersion(1), voter_set(1, 2))
    history.install(20, (KRaftVersion(1), voter_set(3)))
    assert history.latest.ids == (3,)
    assert history.latest_offset == 19


def test_a_follower_that_fetches_a_snapshot_has_its_voters() -> None:
    quorum = ChangingQuorum((1,), (2,))
    quorum.cut.add(2)
    quorum[1].node.propose([b"x"])
    quorum.deliver()
    quorum[1].take_snapshot()
    quorum.cut.clear()
    quorum.now_ms += 5_000
    quorum[2].node.tick(quorum.now_ms)
    quorum.deliver()
    assert quorum[2].node.history.latest == voter_set(1)
    assert isinstance(quorum[2].node.role, Follower)


def test_static_voters_become_those_of_the_log_with_their_directories() -> None:
    quorum = Quorum()
    for member in quorum.members.values():
        member.own = dynamic_voter(member.node.node_id)
        member.node.own = member.own
    quorum.elect(1)
    leader = quorum[1].node
    refused = upgrade_kraft_version(leader, voter_set(1, 2), 0, timeout_ms=TIMEOUT_MS)
    assert refused.error is ErrorCode.invalid_update_version, "one voter is missing"
    upgrade = upgrade_kraft_version(leader, voter_set(1, 2, 3), quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum.deliver()
    assert upgrade.error is ErrorCode.none
    assert all(member.node.history.latest == voter_set(1, 2, 3) for member in quorum.members.values())
    change = remove_voter(leader, dynamic_voter(3).key, quorum.now_ms, timeout_ms=TIMEOUT_MS)
    quorum.deliver()
    assert change.error is ErrorCode.none


def test_an_endpoint_of_a_voter_is_replaced() -> None:
    quorum = ChangingQuorum((1, 2, 3))
    moved = dynamic_voter(2)._replace(endpoints=(VoterEndpoint("CONTROLLER", "elsewhere", 9093),))
    assert update_voter(quorum[1].node, moved, quorum.now_ms) is None
    quorum.deliver()
    assert quorum[3].node.history.latest.get(2) == moved
    stranger = moved._replace(directory_id=OTHER_DIRECTORY)
    refusal = update_voter(quorum[1].node, stranger, quorum.now_ms)
    assert refusal is not None
    assert refusal.error is ErrorCode.voter_not_found


def lone_node(logged: list[LoggedMembership], log: LogState, state: HardState) -> RaftNode:
    """Node 4, which has found the bootstrap server -2."""
    return RaftNode(
        4,
        VoterHistory(VoterSet.of_ids((-2,)), logged, is_fixed=False),
        hard_state=state,
        log=log,
        settings=SETTINGS,
        random_below=lambda _: 0,
        now_ms=0,
        own=dynamic_voter(4),
    )


def run(node: RaftNode, now_ms: int) -> list[Outbound]:
    node.tick(now_ms)
    messages: list[Outbound] = []
    while (ready := node.ready(now_ms)) is not None:
        messages += ready.messages
        node.advance(ready)
    return messages


def test_a_former_leader_that_the_log_does_not_name_starts_as_an_observer() -> None:
    logged = [LoggedMembership(1, KRaftVersion(1)), LoggedMembership(2, voter_set(1, 2))]
    node = lone_node(logged, LogState(0, 3, [(5, 0)]), HardState(5, leader_id=4))
    assert (node.may_stand, node.leader_id) == (False, NO_NODE)
    for now_ms in (0, 100_000):
        assert not any(isinstance(message.request, VoteRequest) for message in run(node, now_ms))
        assert isinstance(node.role, Unattached)


def test_a_former_leader_whose_removal_may_be_undone_stands_without_its_own_vote() -> None:
    logged = [
        LoggedMembership(1, KRaftVersion(1)),
        LoggedMembership(2, voter_set(1, 4)),
        LoggedMembership(3, voter_set(1)),
    ]
    node = lone_node(logged, LogState(0, 4, [(5, 0)]), HardState(5, leader_id=4))
    assert isinstance(node.role, Resigned)
    run(node, 10_000)
    (asked,) = run(node, 20_000)
    node.validate()
    assert isinstance(node.role, Prospective)
    assert (asked.to, node.role.votes.granted) == (1, {})


def test_records_from_the_leader_under_the_id_of_a_bootstrap_server_are_ignored_if_they_are_late() -> None:
    """The leader is node 1. Its log has epoch 4 from offset 2 on; the log of node 4 goes on with epoch 3."""
    node = lone_node([], LogState(0, 3, [(3, 0)]), HardState(5, leader_id=1))
    (fetch,) = run(node, 0)
    node.on_no_response(fetch.number, 1, 10)
    (asked,) = run(node, 10)
    assert (fetch.to, asked.to) == (1, -2)
    (fetch,) = run(node, 500)
    diverging = FetchResponse(5, 1, diverging=OffsetAndEpoch(2, 3))
    node.on_response(fetch.number, 1, diverging, 500)
    (fetch,) = run(node, 500)
    node.on_response(fetch.number, 1, FetchResponse(5, 1, 4, (ReplicatedBatch(2, 4, 4, b""),)), 510)
    (fetch,) = run(node, 510)
    assert (fetch.to, node.high_watermark) == (1, 4)
    node.on_response(asked.number, -2, diverging, 520)  # would truncate committed records
    assert (node.log.end_offset, node.leader_id) == (4, 1)


def test_a_snapshot_without_this_node_ends_its_election() -> None:
    logged = [LoggedMembership(1, KRaftVersion(1)), LoggedMembership(2, voter_set(1, 2, 4))]
    node = lone_node(logged, LogState(0, 3, [(5, 0)]), HardState(5, leader_id=1))
    (fetch,) = run(node, 0)
    snapshot = OffsetAndEpoch(9, 5)
    node.on_response(fetch.number, 1, FetchResponse(5, 1, snapshot=snapshot), 0)
    (fetch,) = run(node, 0)
    chunk = FetchSnapshotResponse(5, 1, snapshot, size=1, position=0, data=b"x")
    node.on_response(fetch.number, 1, chunk, 0)
    node.tick(100_000)  # before the snapshot is written
    assert isinstance(node.role, Prospective)
    ready = node.ready(100_000)
    assert ready is not None
    assert ready.chunk is not None
    written = ready.chunk._replace(membership=(KRaftVersion(1), voter_set(1, 2)))
    node.advance(ready._replace(chunk=written))
    node.validate()
    assert (node.leader_id, isinstance(node.role, Follower)) == (1, True)
