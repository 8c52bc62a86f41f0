"""Elections and replication of a quorum, one event after the other (KIP-595, KIP-996)."""

from random import Random

import pytest
from tests.unit.core.raft.quorum import SETTINGS, Disk, Member

from ottla.core.raft.errors import DivergedBelowCommit, NotLeader
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Outbound,
    VoteRequest,
)
from ottla.core.raft.ready import HardState, LeaderChange
from ottla.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from ottla.model.errors import ErrorCode

VOTERS = (1, 2, 3)
LONG_MS = 10_000


class Quorum:
    """Three voters and, with the id 9, an observer. Messages are delivered until no more are sent."""

    def __init__(self, *ids: int) -> None:
        self.members = {node_id: Member(node_id, VOTERS, Random(node_id)) for node_id in ids or VOTERS}
        self.cut: set[int] = set()
        self.now_ms = 0
        self.sent: list[tuple[Member, Outbound]] = []

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    def deliver(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            self.sent += [(m, out) for m in self.members.values() for out in m.run(self.now_ms)]
            sent, self.sent = self.sent, []
            for member, out in sent:
                self.exchange(member, out)

    def exchange(self, member: Member, out: Outbound) -> None:
        sender = member.node.node_id
        if out.to not in self.members or {sender, out.to} & self.cut:
            member.node.on_no_response(out.number, out.to, self.now_ms)
            return
        receiver = self.members[out.to]
        response = receiver.respond(out.request, self.now_ms)
        # Its state is durable before the response leaves.
        self.sent += [(receiver, other) for other in receiver.run(self.now_ms)]
        member.node.on_response(out.number, out.to, response, self.now_ms)

    def time_out(self, node_id: int) -> None:
        """The node's deadline passes, and nobody else's."""
        node = self[node_id].node
        self.now_ms = max(self.now_ms, node.role.deadline_ms)
        for other in self.members.values():
            if other.node is not node and isinstance(other.node.role, Unattached | Follower):
                other.node.role.deadline_ms = max(other.node.role.deadline_ms, self.now_ms + LONG_MS)
        node.tick(self.now_ms)

    def elect(self, node_id: int) -> None:
        self.time_out(node_id)
        self.deliver()
        assert self[node_id].node.is_leader

    def roles(self) -> dict[int, type]:
        return {node_id: type(member.node.role) for node_id, member in self.members.items()}


def test_a_majority_elects_a_leader_and_the_others_follow_it() -> None:
    quorum = Quorum()
    quorum.elect(2)
    assert quorum.roles() == {1: Follower, 2: Leader, 3: Follower}
    assert {m.node.hard_state for m in quorum.members.values()} >= {HardState(1, 2, -1)}
    change = quorum[1].disk.batches[0]
    assert change.data == LeaderChange(2, VOTERS, (1, 2)) or change.data == LeaderChange(2, VOTERS, (2, 3))
    assert {m.node.high_watermark for m in quorum.members.values()} == {1}


def test_a_quorum_that_starts_does_not_wait_for_an_election_timeout() -> None:
    quorum = Quorum()
    assert all(m.node.role.deadline_ms < SETTINGS.election_timeout_ms for m in quorum.members.values())
    first = min(VOTERS, key=lambda node_id: quorum[node_id].node.role.deadline_ms)
    quorum.now_ms = quorum[first].node.role.deadline_ms
    quorum[first].node.tick(quorum.now_ms)
    quorum.deliver()
    assert quorum[first].node.is_leader


def test_a_voter_that_starts_beside_a_leader_disturbs_nobody() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum[3].disk = Disk()  # a new disk: it knows of no leader
    quorum[3].start(quorum.now_ms)
    quorum.time_out(3)
    assert isinstance(quorum[3].node.role, Prospective)
    quorum.deliver()
    assert quorum.roles() == {1: Leader, 2: Follower, 3: Follower}
    assert {m.node.epoch for m in quorum.members.values()} == {1}


def test_a_prospective_node_disturbs_nobody_while_a_leader_is_heard_of() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.time_out(3)
    assert isinstance(quorum[3].node.role, Prospective)
    quorum.deliver()
    assert quorum.roles() == {1: Leader, 2: Follower, 3: Follower}
    assert {m.node.epoch for m in quorum.members.values()} == {1}


def test_a_vote_is_granted_once_in_an_epoch_and_remembered_over_a_restart() -> None:
    voter = Member(1, VOTERS, Random(1))
    first = VoteRequest(5, 2, OffsetAndEpoch(0, 0), is_pre_vote=False)
    assert voter.node.on_vote(first, 0).is_granted
    assert not voter.node.on_vote(first._replace(candidate_id=3), 0).is_granted
    voter.run(0)
    voter.start(0)
    assert not voter.node.on_vote(first._replace(candidate_id=3), 0).is_granted
    assert voter.node.on_vote(first, 0).is_granted
    assert voter.node.on_vote(first._replace(candidate_id=3, epoch=6), 0).is_granted


def test_a_pre_vote_binds_nobody() -> None:
    voter = Member(1, VOTERS, Random(1)).node
    asked = VoteRequest(0, 2, OffsetAndEpoch(0, 0), is_pre_vote=True)
    assert voter.on_vote(asked, 0).is_granted
    assert voter.on_vote(asked._replace(candidate_id=3), 0).is_granted
    assert voter.hard_state == HardState()


def test_a_candidate_whose_log_ends_earlier_gets_no_vote() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {3}
    quorum[1].node.propose([b"a"])
    quorum.deliver()
    short = VoteRequest(9, 3, OffsetAndEpoch(1, 1), is_pre_vote=False)
    assert not quorum[2].node.on_vote(short, quorum.now_ms).is_granted
    as_long = VoteRequest(9, 3, OffsetAndEpoch(2, 1), is_pre_vote=False)
    assert quorum[2].node.on_vote(as_long, quorum.now_ms).is_granted


@pytest.mark.parametrize(
    "request_",
    [
        VoteRequest(3, -1, OffsetAndEpoch(0, 0), is_pre_vote=False),
        VoteRequest(3, 2, OffsetAndEpoch(-1, 0), is_pre_vote=False),
        VoteRequest(3, 2, OffsetAndEpoch(0, 3), is_pre_vote=False),
        VoteRequest(3, 2, OffsetAndEpoch(0, 4), is_pre_vote=True),
    ],
)
def test_an_impossible_vote_request_is_invalid_and_changes_nothing(request_: VoteRequest) -> None:
    voter = Member(1, VOTERS, Random(1)).node
    assert voter.on_vote(request_, 0).error is ErrorCode.invalid_request
    assert voter.hard_state == HardState()


def test_a_request_of_an_older_epoch_is_fenced_with_the_present_leader() -> None:
    quorum = Quorum()
    quorum.elect(1)
    node = quorum[2].node
    old = VoteRequest(0, 3, OffsetAndEpoch(0, 0), is_pre_vote=True)
    assert node.on_vote(old, 0) == (1, 1, False, ErrorCode.fenced_leader_epoch)
    assert node.on_begin_quorum_epoch(BeginQuorumEpochRequest(0, 3), 0).error is ErrorCode.fenced_leader_epoch
    assert node.on_fetch(FetchRequest(0, 3, 0, 0), 0).response.error is ErrorCode.fenced_leader_epoch


def test_an_epoch_has_one_leader() -> None:
    quorum = Quorum()
    quorum.elect(1)
    for other in (3, 7, -1, 2):
        response = quorum[2].node.on_begin_quorum_epoch(BeginQuorumEpochRequest(1, other), 0)
        assert response == (1, 1, ErrorCode.invalid_request)


def test_records_are_committed_when_a_majority_has_them_on_disk() -> None:
    quorum = Quorum()
    quorum.elect(1)
    leader = quorum[1].node
    quorum.cut = {2, 3}
    entry = leader.propose([b"a", b"b"])
    quorum.deliver()
    assert (entry.base_offset, leader.high_watermark) == (1, 1)
    quorum.cut = {3}
    quorum.now_ms += SETTINGS.retry_backoff_ms
    quorum.deliver()
    assert leader.high_watermark == 3
    assert [batch.data for batch in quorum[2].disk.batches][1:] == [(b"a", b"b")]


def test_what_a_deposed_leader_did_not_commit_is_truncated() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {1}
    quorum[1].node.propose([b"lost"])
    quorum[1].run(quorum.now_ms)
    quorum.time_out(2)
    quorum[3].node.role = Unattached(quorum.now_ms + LONG_MS)  # its fetches time out as well
    quorum.deliver()
    assert quorum[2].node.is_leader
    quorum[2].node.propose([b"kept"])
    quorum.cut = set()
    quorum.now_ms += 2_000
    quorum.deliver()
    for member in quorum.members.values():
        assert [b.data for b in member.disk.batches if isinstance(b.data, tuple)][-1] == (b"kept",)
    assert {m.node.high_watermark for m in quorum.members.values()} == {3}


def test_records_of_an_older_epoch_are_committed_only_with_one_of_the_leaders_own() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {1, 2, 3}
    quorum[1].node.propose([b"a"])
    quorum[1].run(quorum.now_ms)
    deposed = quorum[1]
    deposed.start(quorum.now_ms)
    assert isinstance(deposed.node.role, Resigned)  # it has led this epoch, and may not again
    leader = Member(1, (1, 2, 3), Random(1), deposed.disk)
    leader.node._stand_for_election(quorum.now_ms)
    out = leader.run(quorum.now_ms)
    leader.node.on_response(out[0].number, 2, quorum[2].node.on_vote(out[0].request, 0), quorum.now_ms)  # type: ignore[arg-type]
    leader.run(quorum.now_ms)
    assert leader.node.is_leader
    epoch = leader.node.epoch
    leader.node.on_fetch(FetchRequest(epoch, 2, 2, 1), quorum.now_ms)
    assert leader.node.high_watermark == 0  # 2 has the entry of epoch 1, and none of this epoch
    leader.node.on_fetch(FetchRequest(epoch, 2, 3, epoch), quorum.now_ms)
    assert leader.node.high_watermark == 3


def test_a_leader_that_no_majority_fetches_from_resigns_and_names_the_longest_log_first() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {2}
    quorum[1].node.propose([b"a"])
    quorum.deliver()
    quorum.cut = {2, 3}
    quorum.time_out(1)
    role = quorum[1].node.role
    assert isinstance(role, Resigned)
    assert role.preferred_successors == (3, 2)
    with pytest.raises(NotLeader):
        quorum[1].node.propose([b"b"])
    quorum.cut = set()
    quorum.now_ms += SETTINGS.retry_backoff_ms
    quorum.deliver()
    assert quorum[3].node.role.deadline_ms == quorum.now_ms  # stands at once
    quorum[3].node.tick(quorum.now_ms)
    quorum.deliver()
    assert quorum[3].node.is_leader


def test_successors_stand_one_after_the_other() -> None:
    delays = []
    for node_id in (2, 3, 1):
        member = Member(node_id, (1, 2, 3, 4), Random(1), Disk(HardState(1, 4)))
        member.node.on_end_quorum_epoch(EndQuorumEpochRequest(1, 4, (2, 3, 1)), 0)
        delays.append(member.node.role.deadline_ms)
    assert delays == [0, 250, 500]


def test_an_observer_finds_the_leader_and_never_stands() -> None:
    quorum = Quorum(1, 2, 3, 9)
    quorum.elect(2)
    quorum[2].node.propose([b"a"])
    quorum.deliver()
    assert isinstance(quorum[9].node.role, Follower)
    assert [b.data for b in quorum[9].disk.batches][1:] == [(b"a",)]
    assert quorum[9].node.high_watermark == 2
    leader = quorum[2].node.role
    assert isinstance(leader, Leader)
    assert leader.observers[9].end_offset == 2
    quorum.cut = {9}
    quorum.time_out(9)
    quorum.deliver()
    assert (type(quorum[9].node.role), quorum[9].node.leader_id) == (Follower, 2)
    assert quorum[2].node.high_watermark == 2


def test_a_follower_far_behind_gets_a_snapshot_and_goes_on_after_it() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum.cut = {3}
    for number in range(10):
        quorum[1].node.propose([b"%d" % number])
    quorum.deliver()
    quorum[1].take_snapshot()
    quorum[1].node.propose([b"after"])
    quorum.cut = set()
    quorum.now_ms += SETTINGS.retry_backoff_ms
    quorum.deliver()
    assert quorum[3].disk.snapshot == OffsetAndEpoch(11, 1)
    assert [batch.data for batch in quorum[3].disk.batches] == [(b"after",)]
    assert quorum[3].node.high_watermark == 12


def test_a_follower_refuses_to_truncate_what_is_committed() -> None:
    quorum = Quorum()
    quorum.elect(1)
    quorum[1].node.propose([b"a"])
    quorum.deliver()
    node = quorum[2].node
    with pytest.raises(DivergedBelowCommit, match="below the high watermark 2"):
        node._truncate(1)


def test_a_late_response_of_a_former_role_has_no_effect() -> None:
    quorum = Quorum()
    quorum.time_out(1)
    (to_2, to_3) = quorum[1].run(quorum.now_ms)
    responses = [quorum[out.to].respond(out.request, quorum.now_ms) for out in (to_2, to_3)]
    quorum[1].node.on_response(to_2.number, 2, responses[0], quorum.now_ms)
    assert isinstance(quorum[1].node.role, Candidate)
    quorum[1].node.on_response(to_3.number, 3, responses[1], quorum.now_ms)  # a pre-vote, not a vote
    assert isinstance(quorum[1].node.role, Candidate)


def test_a_node_that_forgot_that_it_led_an_epoch_does_not_vote_in_it() -> None:
    quorum = Quorum()
    quorum.elect(1)
    wiped = Member(1, VOTERS, Random(1))
    quorum.members[1] = wiped
    quorum.time_out(1)
    for out in wiped.run(quorum.now_ms):
        quorum.exchange(wiped, out)
    assert wiped.node.hard_state == HardState(1, -1, 1)


def test_a_fetch_with_a_known_high_watermark_waits_only_while_it_is_the_newest() -> None:
    quorum = Quorum()
    quorum.elect(1)
    leader = quorum[1].node
    assert not leader.on_fetch(FetchRequest(1, 2, 1, 1, high_watermark=1), 0).has_news
    assert leader.on_fetch(FetchRequest(1, 2, 1, 1, high_watermark=0), 0).has_news
    assert not leader.on_fetch(FetchRequest(1, 2, 1, 1), 0).has_news
