"""A voter whose peers are gone, or elsewhere, finds the leader through the bootstrap servers (KIP-853)."""

from collections import Counter
from collections.abc import Mapping

import pytest
from tests.unit.core.raft.quorum import SETTINGS, dynamic_voter

from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import (
    NO_NODE,
    FetchRequest,
    FetchResponse,
    Outbound,
    Response,
    VoteRequest,
    VoteResponse,
)
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import Follower, Prospective
from ottla.core.raft.voter_set import KRaftVersion, LoggedMembership, VoterHistory, VoterSet
from ottla.model.errors import ErrorCode

MINUTE_MS = 60_000
ROUND_TRIP_MS = 10
NOT_LEADER = ErrorCode.not_leader_or_follower
FOLLOWER, UNATTACHED = HardState(5, leader_id=1), HardState(5)


def voter_3(state: HardState) -> RaftNode:
    """One of the voters 1, 2 and 3 by its log, which is old. It was told of the bootstrap servers -2 and -3."""
    voters = VoterSet.of(map(dynamic_voter, (1, 2, 3)))
    logged = [LoggedMembership(1, KRaftVersion(1)), LoggedMembership(2, voters)]
    return RaftNode(
        3,
        VoterHistory(VoterSet.of_ids((-2, -3)), logged, is_fixed=False),
        hard_state=state,
        log=LogState(0, 3, [(4, 0)]),
        settings=SETTINGS,
        random_below=lambda limit: limit // 2,
        now_ms=0,
        own=dynamic_voter(3),
    )


class Around:
    """What a node finds around it. Nodes without a response refuse connections, or lose what they get."""

    def __init__(self, node: RaftNode, responses: Mapping[int, Response], *, is_silent: bool = False) -> None:
        self.node = node
        self.responses = responses
        self.is_silent = is_silent
        self.asked: Counter[int] = Counter()
        self.now_ms = 0

    def run(self, until_ms: int) -> None:
        """Until the node follows node 4, or the time is over."""
        while self.now_ms < until_ms and self.node.leader_id != 4:
            self.node.tick(self.now_ms)
            sent = self.send()
            self.now_ms += ROUND_TRIP_MS
            for out in sent:
                self.asked[out.to] += 1
                self.answer(out.number, out.to)
            self.node.validate()

    def send(self) -> list[Outbound]:
        sent: list[Outbound] = []
        while (ready := self.node.ready(self.now_ms)) is not None:
            self.node.advance(ready)
            sent += ready.messages
        return sent

    def answer(self, number: int, to: int) -> None:
        response = self.responses.get(to)
        if response is not None:
            self.node.on_response(number, to, response, self.now_ms)
        elif not self.is_silent:
            self.node.on_no_response(number, to, self.now_ms, is_refused=True)


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("state", [FOLLOWER, UNATTACHED])
def test_a_voter_whose_peers_are_gone_follows_a_leader_that_a_bootstrap_server_names(
    state: HardState, is_silent: bool
) -> None:
    node = voter_3(state)
    around = Around(node, {-3: FetchResponse(9, 4, error=NOT_LEADER)}, is_silent=is_silent)
    around.run(MINUTE_MS)
    assert (node.epoch, node.leader_id, type(node.role)) == (9, 4, Follower)
    assert [(out.to, type(out.request)) for out in around.send()] == [(4, FetchRequest)]


def test_a_voter_that_has_found_a_leader_so_keeps_the_rules_of_votes() -> None:
    node = voter_3(FOLLOWER)
    around = Around(node, {-2: FetchResponse(9, 4, error=NOT_LEADER)})
    around.run(MINUTE_MS)
    pre_vote = VoteRequest(9, 5, OffsetAndEpoch(8, 9), True, dynamic_voter(5).directory_id)
    assert node.on_vote(pre_vote, around.now_ms).is_granted, "it has not fetched from the leader yet"
    vote = pre_vote._replace(is_pre_vote=False)
    assert not node.on_vote(vote, around.now_ms).is_granted, "the epoch has a leader"
    (fetch,) = around.send()
    node.on_response(fetch.number, 4, FetchResponse(9, 4, 3), around.now_ms)
    assert not node.on_vote(pre_vote, around.now_ms).is_granted, "it hears from the leader"
    around.now_ms += SETTINGS.fetch_timeout_ms
    node.tick(around.now_ms)
    assert isinstance(node.role, Prospective)
    assert node.on_vote(vote._replace(epoch=10), around.now_ms).is_granted


def test_a_voter_whose_leader_responds_asks_no_bootstrap_server() -> None:
    around = Around(voter_3(FOLLOWER), {1: FetchResponse(5, 1, 3)})
    around.run(MINUTE_MS)
    assert set(around.asked) == {1}


def test_a_voter_whose_bootstrap_servers_know_no_other_leader_asks_them_in_turn_and_with_pauses() -> None:
    same = FetchResponse(5, 1, error=NOT_LEADER)
    around = Around(voter_3(FOLLOWER), {-2: same, -3: same})
    around.run(MINUTE_MS)
    assert 0 < around.asked[-2] < MINUTE_MS // SETTINGS.retry_backoff_ms // 2
    assert abs(around.asked[-2] - around.asked[-3]) <= 1


def test_an_unattached_voter_stands_while_it_searches() -> None:
    """No leader is known, and the other voters would vote for it."""
    granted, unknown = VoteResponse(5, NO_NODE, is_granted=True), FetchResponse(5, NO_NODE, error=NOT_LEADER)
    node = voter_3(UNATTACHED)
    around = Around(node, {1: granted, 2: granted, -2: unknown, -3: unknown})
    around.run(SETTINGS.election_timeout_ms // 2)
    assert around.asked[-2] > 0
    assert node.epoch > 5, "it has stood for election"


def test_static_voters_ask_each_other_for_votes_only() -> None:
    node = RaftNode(
        3,
        (1, 2, 3),
        hard_state=HardState(),
        log=LogState(),
        settings=SETTINGS,
        random_below=lambda limit: limit // 2,
        now_ms=0,
    )
    for now_ms in range(0, MINUTE_MS, ROUND_TRIP_MS):
        node.tick(now_ms)
        ready = node.ready(now_ms)
        for out in ready.messages if ready is not None else ():
            assert isinstance(out.request, VoteRequest)
            node.on_no_response(out.number, out.to, now_ms)
        if ready is not None:
            node.advance(ready)
