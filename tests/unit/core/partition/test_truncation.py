"""Where a follower truncates its log, and which batches of its leader it accepts (KIP-101, KIP-279, KIP-595)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.partition.test_follower import follower_of

from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.truncation import truncation_offset
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import scan_complete_batches
from ottla.records.records import Record, build_batch

History = list[int]  # the leader epoch of each record


def epochs_of(history: History) -> LeaderEpochCache:
    cache = LeaderEpochCache()
    for offset, epoch in enumerate(history):
        cache.assign(epoch, offset)
    return cache


def test_kip_101_a_follower_keeps_records_that_its_high_watermark_does_not_cover() -> None:
    """Seed 003: A has m2 and does not know yet that it is committed. The leader's epoch 0 ends behind m2."""
    assert truncation_offset(epochs_of([0, 0]), 2, diverging_epoch=0, diverging_end_offset=2) == 2


def test_kip_101_a_follower_removes_records_that_the_new_leader_never_had() -> None:
    """Seed 003: A has m2 of epoch 0 at offset 1. B was elected without it and wrote m3 there in epoch 1."""
    assert truncation_offset(epochs_of([0, 0]), 2, diverging_epoch=0, diverging_end_offset=1) == 1


def test_kip_279_a_follower_without_the_leaders_epoch_removes_all_later_ones_and_asks_again() -> None:
    assert truncation_offset(epochs_of([0, 0, 2, 2]), 4, diverging_epoch=1, diverging_end_offset=3) == 2


def test_an_epoch_that_the_leader_does_not_know_is_cut_at_the_end_of_its_log() -> None:
    assert truncation_offset(epochs_of([5, 5, 5]), 3, diverging_epoch=-1, diverging_end_offset=1) == 1


@st.composite
def replicas(draw: st.DrawFn) -> tuple[History, History]:
    """Two logs of the same partition: they share a prefix, and no epoch was written by both after that."""
    prefix = sorted(draw(st.lists(st.integers(0, 5), max_size=6)))
    last = prefix[-1] if prefix else 0
    leader_epochs = draw(st.lists(st.sampled_from([last + 1, last + 3, last + 5]), max_size=5))
    follower_epochs = draw(st.lists(st.sampled_from([last, last + 2, last + 4]), max_size=5))
    return prefix + sorted(leader_epochs), prefix + sorted(follower_epochs)


@given(replicas())
def test_repeated_truncation_ends_where_the_logs_agree(logs: tuple[History, History]) -> None:
    leader, follower = logs
    leader_epochs = epochs_of(leader)
    for _ in range(20):
        if not follower:
            break
        epoch, end = leader_epochs.end_offset_for(follower[-1], len(leader))
        if epoch == -1:  # the leader has no epoch as late as the follower's last one
            epoch, end = (leader[-1], len(leader)) if leader else (-1, 0)
        if epoch == follower[-1] and end >= len(follower):
            break
        offset = truncation_offset(epochs_of(follower), len(follower), epoch, end)
        assert offset < len(follower)
        follower = follower[:offset]
    assert follower == leader[: len(follower)]


def batch_of(offset: int, count: int, epoch: int) -> bytes:
    return build_batch((Record(offset + index, 0, None, b"v") for index in range(count)), leader_epoch=epoch)


def test_a_follower_accepts_whole_batches_behind_its_log() -> None:
    follower = follower_of(MutableLogOffsets(0, 10))
    first, second = batch_of(10, 3, 4), batch_of(13, 1, 4)
    accepted = follower.accept(memoryview(first + second + second[:30]))
    assert [(header.base_offset, bytes(parts[0])) for header, parts in accepted] == [
        (10, first),
        (13, second),
    ]


def test_a_follower_accepts_a_gap_that_compaction_has_left() -> None:
    follower = follower_of(MutableLogOffsets(0, 10))
    assert [header.base_offset for header, _ in follower.accept(memoryview(batch_of(17, 1, 3)))] == [17]


def test_batches_of_a_later_epoch_than_the_followers_are_left_out() -> None:
    follower = follower_of(MutableLogOffsets(0, 10))
    accepted = follower.accept(memoryview(batch_of(10, 1, 4) + batch_of(11, 1, 5) + batch_of(12, 1, 4)))
    assert [header.base_offset for header, _ in accepted] == [10]


def test_a_batch_before_the_end_of_the_log_is_rejected() -> None:
    follower = follower_of(MutableLogOffsets(0, 10))
    with pytest.raises(KafkaError, match="offset 9, but the log ends at 10"):
        follower.accept(memoryview(batch_of(9, 1, 4)))


def test_a_damaged_batch_is_rejected() -> None:
    damaged = bytearray(batch_of(10, 3, 4))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as rejected:
        follower_of(MutableLogOffsets(0, 10)).accept(memoryview(damaged))
    assert rejected.value.code is ErrorCode.corrupt_message


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_or_rejected(data: bytes) -> None:
    try:
        scan_complete_batches(data)
    except KafkaError:
        pass
