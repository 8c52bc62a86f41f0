"""Raft with one voter keeps the order on which safety depends (KIP-595)."""

import pytest

from ottla.core.raft.errors import NotLeader
from ottla.core.raft.log_state import LogState
from ottla.core.raft.node import RaftNode
from ottla.core.raft.ready import Entry, HardState, LeaderChange, Ready
from ottla.core.raft.roles import Unattached
from ottla.core.raft.settings import RaftSettings

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
