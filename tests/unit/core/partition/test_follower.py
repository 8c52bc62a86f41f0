"""The high watermark and the log start of a follower, as its leader's responses move them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.core.partition.batches import batch

from ottla.core.partition.effects import NO_EFFECTS
from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.follower import PartitionFollower
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.producers import NO_VERIFICATION, ProducerStateTable
from ottla.core.partition.role import trusted_high_watermark
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.records import Record, build_batch


def follower_of(
    offsets: MutableLogOffsets,
    *,
    high_watermark: int = 0,
    leader_id: int = 2,
    epochs: LeaderEpochCache | None = None,
) -> PartitionFollower:
    return PartitionFollower(
        offsets, ProducerStateTable(), epochs or LeaderEpochCache(), leader_epoch=4, leader_id=leader_id,
        partition_epoch=7, high_watermark=high_watermark,
    )  # fmt: skip


def test_the_high_watermark_is_the_leaders_but_never_above_the_end_of_the_log() -> None:
    offsets = MutableLogOffsets(0, 10)
    follower = follower_of(offsets)
    assert follower.on_fetched(6, 0).high_watermark_moved
    assert follower.high_watermark == 6
    follower.on_fetched(50, 0)
    assert follower.high_watermark == 10
    offsets.end = 20
    follower.on_fetched(50, 0)
    assert follower.high_watermark == 20


def test_a_new_leader_that_knows_less_does_not_move_the_high_watermark_back() -> None:
    follower = follower_of(MutableLogOffsets(0, 10), high_watermark=8)
    assert follower.on_fetched(3, 0) == NO_EFFECTS
    assert follower.high_watermark == 8


def test_a_truncation_moves_the_high_watermark_to_the_end_of_the_log() -> None:
    offsets = MutableLogOffsets(0, 10)
    follower = follower_of(offsets, high_watermark=8)
    offsets.end = 5
    follower.on_truncated()
    assert follower.high_watermark == 5
    offsets.start, offsets.end = 30, 30
    follower.on_truncated()
    assert follower.high_watermark == 30


def test_the_log_start_follows_the_leaders_up_to_the_high_watermark() -> None:
    follower = follower_of(MutableLogOffsets(2, 10))
    assert follower.on_fetched(6, 2).delete_before is None
    assert follower.on_fetched(6, 4).delete_before == 4
    assert follower.on_fetched(6, 9).delete_before == 6


@pytest.mark.parametrize(
    ("start", "end", "base", "expected"),
    [
        (5, 5, 0, 0),  # the leader's log starts inside the batch 0 to 9
        (9, 9, 0, 0),
        (10, 10, 0, None),  # the batch ends before the log
        (0, 0, 0, None),
        (5, 5, 5, None),
        (4, 5, 0, None),  # the log has records: they must not be removed
    ],
)
def test_only_an_empty_log_starts_again_at_a_batch_that_begins_before_it(
    start: int, end: int, base: int, expected: int | None
) -> None:
    follower = follower_of(MutableLogOffsets(start, end))
    records = [Record(base + index, 1, None, b"v") for index in range(10)]
    assert follower.restart_offset(memoryview(build_batch(records, leader_epoch=4))) == expected
    assert follower.restart_offset(memoryview(build_batch(records, leader_epoch=5))) is None
    assert follower.restart_offset(memoryview(b"")) is None


def test_retention_reports_that_the_log_start_has_moved() -> None:
    offsets = MutableLogOffsets(2, 10)
    follower = follower_of(offsets)
    assert not follower.on_log_start_moved(2).log_start_moved
    offsets.start = 3
    assert follower.on_log_start_moved(2).log_start_moved


def test_a_flush_commits_nothing_on_a_follower() -> None:
    follower = follower_of(MutableLogOffsets(0, 10))
    assert follower.on_flushed(10, 0) == NO_EFFECTS
    assert follower.high_watermark == 0


@pytest.mark.parametrize(
    ("epoch", "code"), [(3, ErrorCode.fenced_leader_epoch), (5, ErrorCode.unknown_leader_epoch)]
)
def test_requests_of_another_leader_epoch_are_rejected(epoch: int, code: ErrorCode) -> None:
    follower = follower_of(MutableLogOffsets(0, 0))
    follower.check_epoch(4)
    follower.check_epoch(-1)
    with pytest.raises(KafkaError) as rejected:
        follower.check_epoch(epoch)
    assert rejected.value.code is code


def test_the_last_stable_offset_stops_before_an_open_transaction() -> None:
    producers = ProducerStateTable()
    header = batch(offset=3, count=2, producer_id=9, epoch=0, sequence=0, transactional=True)
    producers.check(header, NO_VERIFICATION)
    producers.update(header)
    follower = PartitionFollower(
        MutableLogOffsets(0, 10), producers, LeaderEpochCache(), leader_epoch=4, leader_id=2, partition_epoch=7,
        high_watermark=8,
    )  # fmt: skip
    assert follower.last_stable_offset == 3


def test_a_fetcher_whose_log_has_diverged_from_the_followers_gets_the_offset_to_truncate_to() -> None:
    """As from the leader: consumers may fetch from followers (KIP-392)."""
    epochs = LeaderEpochCache()
    epochs.load([(1, 0), (3, 20)])
    offsets = MutableLogOffsets(5, 30)
    follower = follower_of(offsets, epochs=epochs)
    assert follower.diverging_epoch(-1, 99) is None
    assert follower.diverging_epoch(3, 30) is None
    assert follower.diverging_epoch(2, 20) == (1, 20)
    assert follower.diverging_epoch(1, 25) == (1, 20)
    for epoch, offset in ((4, 20), (1, 4)):
        with pytest.raises(KafkaError) as rejected:
            follower.diverging_epoch(epoch, offset)
        assert rejected.value.code is ErrorCode.offset_out_of_range


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(["append", "fetch", "truncate"]), st.integers(0, 30)), max_size=30))
def test_the_high_watermark_never_falls_without_a_truncation_and_never_passes_the_end(
    steps: list[tuple[str, int]],
) -> None:
    offsets = MutableLogOffsets(0, 0)
    follower = follower_of(offsets)
    for step, number in steps:
        before = follower.high_watermark
        if step == "append":
            offsets.end += number
        elif step == "fetch":
            follower.on_fetched(number, 0)
        else:
            offsets.end = min(offsets.end, number)
            follower.on_truncated()
        assert follower.high_watermark <= offsets.end
        assert step == "truncate" or follower.high_watermark >= before


@pytest.mark.parametrize(
    ("replicas", "was_closed_cleanly", "expected"), [(1, True, 9), (1, False, 9), (3, True, 9), (3, False, 0)]
)
def test_a_replica_trusts_no_high_watermark_after_a_crash_before_its_leader_tells_it(
    replicas: int, was_closed_cleanly: bool, expected: int
) -> None:
    """A truncation that was not flushed is undone by a power loss: the old records must not be read as committed."""
    found = trusted_high_watermark(9, replicas=replicas, was_closed_cleanly=was_closed_cleanly)
    assert found == expected


def test_a_leader_that_no_other_log_can_contradict_trusts_its_high_watermark() -> None:
    assert trusted_high_watermark(9, replicas=3, was_closed_cleanly=False, leads_alone=True) == 9
