"""Raft with one voter keeps the order on which safety depends (KIP-595)."""

import pytest

from ottla.core.raft.errors import NotLeader
from ottla.core.raft.log_state import LogState
from ottla.core.raft.messages import NO_NODE, FetchResponse, Outbound
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import Entry, HardState, LeaderChange, Ready
from ottla.core.raft.roles import Follower, Prospective, Unattached
from ottla.core.raft.settings import RaftSettings
from ottla.model.errors import ErrorCode

NEVER_VOTED = HardState()


def node(hard_state: HardState = NEVER_VOTED, log_end_offset: int = 0, log_epoch: int = -1) -> RaftNode:
    return RaftNode(
        1,
        (1,),
        hard_state=hard_state,
        log=LogState(0, log_end_offset, [(log_epoch, 0)] if log_end_offset else []),
        settings=RaftSettings(),
        random_below=lambda bound: 0,
        now_ms=0,
    )


def elected(raft: RaftNode) -> Ready:
    raft.tick(0)
    ready = raft.ready(0)
    assert ready is not None
    return ready


def test_a_node_does_not_lead_before_its_first_tick() -> None:
    raft = node()
    assert isinstance(raft.role, Unattached)
    assert (raft.leader_id, raft.ready(0)) == (-1, None)
    with pytest.raises(NotLeader):
        raft.propose([b"a"])


def test_the_only_voter_elects_itself_in_a_new_epoch_with_a_leader_change_first() -> None:
    raft = node(HardState(4, 1, -1), log_end_offset=10, log_epoch=4)
    ready = elected(raft)
    change = Entry(10, 5, LeaderChange(1, (1,), (1,)))
    assert ready == Ready(HardState(5, 1, -1), None, (change,), None, ())
    assert (raft.leader_id, raft.epoch, raft.epoch_start_offset) == (1, 5, 10)


def test_an_epoch_of_the_log_is_never_used_again_even_if_the_state_was_lost() -> None:
    raft = node(HardState(), log_end_offset=10, log_epoch=7)
    assert elected(raft).entries[0].epoch == 8


def test_a_second_tick_starts_no_election() -> None:
    raft = node()
    raft.advance(elected(raft))
    raft.tick(1)
    assert raft.ready(1) is None
    assert raft.epoch == 1


def test_nothing_is_committed_before_it_is_durable() -> None:
    raft = node()
    ready = elected(raft)
    raft.propose([b"a", b"b"])
    assert raft.high_watermark == 0
    raft.advance(ready)
    assert raft.high_watermark == 1
    following = raft.ready(0)
    assert following == Ready(None, None, (Entry(1, 1, (b"a", b"b")),), None, ())
    raft.advance(following)
    assert (raft.high_watermark, raft.log.end_offset, raft.ready(0)) == (3, 3, None)


def test_the_entries_of_earlier_epochs_are_committed_with_the_leader_change() -> None:
    raft = node(HardState(1, 1, -1), log_end_offset=10, log_epoch=1)
    ready = elected(raft)
    assert raft.high_watermark == 0
    raft.advance(ready)
    assert raft.high_watermark == 11


def test_a_proposal_during_a_flush_is_in_the_next_ready() -> None:
    raft = node()
    raft.advance(elected(raft))
    raft.propose([b"a"])
    first = raft.ready(0)
    assert first is not None
    raft.propose([b"b"])
    raft.advance(first)
    assert raft.high_watermark == 2
    second = raft.ready(0)
    assert second is not None
    assert [entry.payload for entry in second.entries if isinstance(entry, Entry)] == [(b"b",)]


def test_offsets_follow_each_other() -> None:
    raft = node()
    elected(raft)
    entries = [raft.propose([b"x"] * size) for size in (1, 3, 2)]
    assert [(entry.base_offset, entry.next_offset) for entry in entries] == [(1, 2), (2, 5), (5, 7)]


def test_an_empty_proposal_is_rejected() -> None:
    raft = node()
    elected(raft)
    with pytest.raises(ValueError, match="at least one record"):
        raft.propose([])


def follower(now_ms: int = 0) -> tuple[RaftNode, int]:
    """A voter that follows node 2 in epoch 1, and the number of its fetch in flight."""
    raft = RaftNode(
        1,
        (1, 2, 3),
        hard_state=HardState(1, 2, -1),
        log=LogState(0, 0, []),
        settings=RaftSettings(),
        random_below=lambda bound: bound - 1,
        now_ms=now_ms,
    )
    ready = raft.ready(now_ms)
    assert ready is not None
    (fetch,) = ready.messages
    raft.advance(ready)
    return raft, fetch.number


def test_a_voter_whose_leader_refuses_connections_stands_soon_instead_of_after_the_fetch_timeout() -> None:
    raft, number = follower()
    raft.on_no_response(number, 2, 100, is_refused=True)
    raft.tick(349)
    assert isinstance(raft.role, Prospective)


def test_a_voter_whose_leader_does_not_respond_waits_for_the_whole_fetch_timeout() -> None:
    raft, number = follower()
    raft.on_no_response(number, 2, 100)
    raft.tick(1_999)
    assert isinstance(raft.role, Follower)
    raft.tick(2_000)
    assert isinstance(raft.role, Prospective)


def test_an_observer_asks_again_even_if_its_pause_ends_between_a_step_and_the_next_wait() -> None:
    """A step may take longer than the pause on a busy machine. An observer has no other timeout that would wake it."""
    settings = RaftSettings()
    raft = RaftNode(
        9,
        (1,),
        hard_state=NEVER_VOTED,
        log=LogState(0, 0, []),
        settings=settings,
        random_below=lambda _: 0,
        now_ms=0,
    )
    (asked,) = elected(raft).messages
    raft.on_no_response(asked.number, asked.to, 0, is_refused=True)
    raft.tick(0)
    assert raft.ready(0) is None
    late_ms = settings.retry_backoff_ms + 5
    assert raft.next_tick_ms() <= late_ms
    raft.tick(late_ms)
    ready = raft.ready(late_ms)
    assert ready is not None
    assert [message.to for message in ready.messages] == [1]


def observer(voters: tuple[int, ...], epoch: int = 0) -> RaftNode:
    return RaftNode(
        9,
        voters,
        hard_state=HardState(epoch),
        log=LogState(0, 0, []),
        settings=RaftSettings(),
        random_below=lambda _: 0,
        now_ms=0,
    )


def sent(raft: RaftNode, now_ms: int) -> tuple[Outbound, ...]:
    raft.tick(now_ms)
    ready = raft.ready(now_ms)
    if ready is None:
        return ()
    raft.advance(ready)
    return ready.messages


def test_an_observer_does_not_ask_a_voter_of_an_earlier_epoch_without_pause() -> None:
    raft = observer((1, 2), epoch=5)
    requests = 0
    while messages := sent(raft, 0):
        requests += len(messages)
        assert requests < 10
        for message in messages:
            earlier = FetchResponse(4, NO_NODE, error=ErrorCode.fenced_leader_epoch)
            raft.on_response(message.number, message.to, earlier, 0)
    assert requests == 2
    assert raft.next_tick_ms() == RaftSettings().retry_backoff_ms


def test_a_voter_that_does_not_respond_does_not_stop_the_search_for_the_leader() -> None:
    """It may have been the leader, and takes the whole timeout of a request each time."""
    raft = observer((1, 2, 3))
    asked: list[int] = []
    for now_ms in range(0, 1_000, 5):
        for message in sent(raft, now_ms):
            asked.append(message.to)
            if message.to != 2:
                no_leader = FetchResponse(0, NO_NODE, error=ErrorCode.not_leader_or_follower)
                raft.on_response(message.number, message.to, no_leader, now_ms)
            elif asked.count(2) == 1:
                raft.on_no_response(message.number, 2, now_ms)
    assert asked.count(2) == 2
    assert len(asked) > 20


def search_for_a_leader(raft: RaftNode, from_ms: int, until_ms: int, named: int) -> tuple[int, int]:
    """Only voter 2 listens, and names a leader. Returns how many requests were sent and hard states written."""
    requests = hard_states = 0
    for now_ms in range(from_ms, until_ms):
        raft.tick(now_ms)
        while (ready := raft.ready(now_ms)) is not None and requests < 10_000:
            requests, hard_states = (
                requests + len(ready.messages),
                hard_states + (ready.hard_state is not None),
            )
            raft.advance(ready)
            for message in ready.messages:
                if message.to == 2:
                    other = FetchResponse(5, named, error=ErrorCode.not_leader_or_follower)
                    raft.on_response(message.number, 2, other, now_ms)
                else:
                    raft.on_no_response(message.number, message.to, now_ms, is_refused=True)
    return requests, hard_states


def test_an_observer_pauses_before_it_asks_a_dead_leader_that_others_still_name() -> None:
    raft = observer((1, 2, 3), epoch=5)
    requests, hard_states = search_for_a_leader(raft, 0, 1_000, named=1)
    assert 20 < requests < 100
    assert hard_states < 25
    requests, hard_states = search_for_a_leader(raft, 1_000, 11_000, named=1)
    assert requests < 1_000
    assert hard_states < 50


def test_an_observer_of_a_dead_leader_soon_follows_the_next_one() -> None:
    raft = observer((1, 2, 3), epoch=5)
    search_for_a_leader(raft, 0, 5_000, named=1)
    now_ms = 5_000
    while raft.leader_id != 3:
        assert now_ms < 5_100
        for message in sent(raft, now_ms):
            if message.to == 2:
                other = FetchResponse(6, 3, error=ErrorCode.fenced_leader_epoch)
                raft.on_response(message.number, 2, other, now_ms)
            else:
                raft.on_no_response(message.number, message.to, now_ms, is_refused=True)
        now_ms += 1
    assert [message.to for message in sent(raft, now_ms)] == [3]


def following_observer() -> RaftNode:
    """Follows node 1, which has responded to a fetch and holds the next one."""
    raft = observer((1, 2, 3), epoch=5)
    raft.hard_state = HardState(5, 1)
    raft.role = Follower(RaftSettings().fetch_timeout_ms)
    (first,) = sent(raft, 0)
    raft.on_response(first.number, 1, FetchResponse(5, 1, 0), 0)
    return raft


def test_an_observer_that_loses_a_connection_keeps_its_leader_and_fetches_again() -> None:
    """The heartbeats of its broker go to that leader. A voter that is asked for a new one may never respond."""
    raft = following_observer()
    (fetch,) = sent(raft, 100)
    raft.on_no_response(fetch.number, 1, 200)
    assert raft.leader_id == 1
    (asked,) = sent(raft, 200)
    assert asked.to in (2, 3)
    again_ms = 200 + RaftSettings().retry_backoff_ms
    assert raft.next_tick_ms() == again_ms
    (fetch,) = sent(raft, again_ms)
    assert fetch.to == 1
    raft.on_response(fetch.number, 1, FetchResponse(5, 1, 0), 300)
    raft.on_no_response(asked.number, asked.to, 2_200)
    assert (raft.leader_id, [message.to for message in sent(raft, 2_200)]) == (1, [1])


def test_an_observer_asks_no_other_voter_while_a_leader_that_one_has_named_holds_the_fetch() -> None:
    raft = following_observer()
    (fetch,) = sent(raft, 100)
    raft.on_no_response(fetch.number, 1, 200)
    (asked,) = sent(raft, 200)
    same = FetchResponse(5, 1, error=ErrorCode.not_leader_or_follower)
    raft.on_response(asked.number, asked.to, same, 219)
    assert [[message.to for message in sent(raft, now_ms)] for now_ms in range(220, 700, 20)][1:] == [[]] * 23
    assert raft.leader_id == 1


def test_an_observer_of_a_silent_leader_asks_the_others_and_follows_the_next_one() -> None:
    raft = following_observer()
    assert [message.to for message in sent(raft, 100)] == [1]
    assert sent(raft, 1_999) == ()
    (asked,) = sent(raft, 2_000)
    assert (asked.to in (2, 3), raft.leader_id) == (True, 1)
    raft.on_response(asked.number, asked.to, FetchResponse(6, 3, error=ErrorCode.fenced_leader_epoch), 2_001)
    assert (raft.leader_id, [message.to for message in sent(raft, 2_001)]) == (3, [3])


def test_a_pause_that_has_ended_does_not_keep_a_node_awake() -> None:
    settings = RaftSettings()
    raft = RaftNode(
        9,
        (1, 2),
        hard_state=NEVER_VOTED,
        log=LogState(0, 0, []),
        settings=settings,
        random_below=lambda _: 0,
        now_ms=0,
    )
    (asked,) = elected(raft).messages
    raft.on_no_response(asked.number, asked.to, 0)
    raft.tick(0)
    assert raft.ready(0) is not None  # it asks the other voter, which takes long to respond
    late_ms = settings.retry_backoff_ms + 5
    raft.tick(late_ms)
    assert raft.ready(late_ms) is None
    assert raft.next_tick_ms() > late_ms
