"""KIP-101, KIP-279, KIP-320: which leader epoch wrote which offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.core.partition.epochs import LeaderEpochCache

UNDEFINED = (-1, -1)


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache()
    epochs.load(entries)
    return epochs


def test_an_epoch_is_assigned_once_at_its_first_offset() -> None:
    epochs = cache()
    assert epochs.latest is None
    assert epochs.assign(2, 10)
    assert not epochs.assign(2, 10)
    assert not epochs.assign(2, 15)
    assert epochs.entries() == [(2, 10)]
    assert epochs.latest == 2


def test_a_new_entry_removes_entries_that_contradict_it() -> None:
    epochs = cache((1, 0), (2, 10), (4, 20))
    assert epochs.assign(3, 15)  # an older epoch after a newer one: the newer was truncated
    assert epochs.entries() == [(1, 0), (2, 10), (3, 15)]
    assert epochs.assign(5, 10)  # nothing of epochs 2 and 3 is left from offset 10
    assert epochs.entries() == [(1, 0), (5, 10)]


def test_an_epoch_without_records_is_replaced_by_the_next_at_the_same_offset() -> None:
    epochs = cache((1, 0), (2, 10))
    assert epochs.assign(3, 10)
    assert epochs.entries() == [(1, 0), (3, 10)]


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_rejected(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="neither may be negative"):
        cache().assign(epoch, offset)


def test_the_latest_epoch_ends_at_the_log_end_offset() -> None:
    assert cache((1, 0), (3, 10)).end_offset_for(3, 42) == (3, 42)


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    assert cache((1, 0), (3, 10), (4, 20)).end_offset_for(1, 42) == (1, 10)


def test_for_an_epoch_without_records_the_largest_one_below_it_is_returned() -> None:
    assert cache((1, 0), (3, 10), (5, 20)).end_offset_for(4, 42) == (3, 20)


def test_an_epoch_older_than_all_known_ones_ends_where_the_first_known_one_starts() -> None:
    assert cache((5, 20), (6, 30)).end_offset_for(2, 42) == (2, 20)


def test_an_epoch_newer_than_all_is_undefined() -> None:
    assert cache((1, 0)).end_offset_for(2, 42) == UNDEFINED
    assert cache().end_offset_for(0, 42) == UNDEFINED


def test_the_undefined_epoch_is_undefined() -> None:
    assert cache((1, 0), (2, 5)).end_offset_for(-1, 42) == UNDEFINED


def test_truncating_the_end_removes_epochs_that_start_there_or_later() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    assert not epochs.truncate_from_end(21)
    assert epochs.truncate_from_end(20)
    assert epochs.entries() == [(1, 0), (2, 10)]
    assert epochs.truncate_from_end(0)
    assert epochs.entries() == []


def test_truncating_the_start_moves_the_start_of_the_epoch_there() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    assert epochs.truncate_from_start(15)
    assert epochs.entries() == [(2, 15), (3, 20)]
    assert epochs.truncate_from_start(20)
    assert epochs.entries() == [(3, 20)]
    assert not epochs.truncate_from_start(20)
    assert epochs.truncate_from_start(25)
    assert epochs.entries() == [(3, 25)]


def test_truncating_before_the_first_epoch_changes_nothing() -> None:
    epochs = cache((2, 10))
    assert not epochs.truncate_from_start(5)
    assert epochs.entries() == [(2, 10)]


def test_the_epoch_of_an_offset_is_the_last_that_started_up_to_it() -> None:
    epochs = cache((2, 10), (4, 20))
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 4, 4]


@examples(150)
@given(
    writes=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 6)), max_size=12),
    asked=st.integers(-1, 30),
)
def test_end_offsets_of_epochs_match_a_log_written_record_by_record(
    writes: list[tuple[int, int, int]], asked: int
) -> None:
    """Leaders change, append, and sometimes truncate records that an older leader had not committed."""
    epochs = LeaderEpochCache()
    log: list[int] = []  # the epoch of each record
    epoch = 0
    for step, count, cut in writes:
        epoch += step
        if step and cut < len(log):
            del log[len(log) - cut :]
            epochs.truncate_from_end(len(log))
        for _ in range(count):
            epochs.assign(epoch, len(log))
            log.append(epoch)
    assert [epochs.epoch_at(offset) for offset in range(len(log))] == log
    if asked in log:
        end = max(offset for offset, written in enumerate(log) if written == asked) + 1
        assert epochs.end_offset_for(asked, len(log)) == (asked, end)
