"""The offset that may be committed when records are finished in any order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.consumer.offsets import OffsetTracker


def test_nothing_is_committable_before_a_record_is_finished() -> None:
    tracker = OffsetTracker()
    assert tracker.committable() is None
    tracker.started(5)
    assert tracker.committable() is None


def test_records_finished_behind_an_unfinished_one_are_not_committable() -> None:
    tracker = OffsetTracker()
    for offset in (5, 6, 9):
        tracker.started(offset)
    tracker.finished(6)
    tracker.finished(9)
    assert tracker.committable() is None
    assert len(tracker) == 3
    tracker.finished(5)
    assert tracker.committable() == 10
    assert len(tracker) == 0


def test_the_committable_offset_is_one_past_the_last_record_finished_in_order() -> None:
    tracker = OffsetTracker()
    for offset in (5, 9):
        tracker.started(offset)
    tracker.finished(5)
    # Not 9: whether 6 to 8 exist is not known here.
    assert tracker.committable() == 6


def test_offsets_start_in_order() -> None:
    tracker = OffsetTracker()
    tracker.started(5)
    for offset in (5, 4):
        with pytest.raises(ValueError, match=f"offset {offset} starts after offset 5"):
            tracker.started(offset)
    assert tracker.last_started == 5


def test_a_record_is_finished_once_and_only_if_it_was_started() -> None:
    tracker = OffsetTracker()
    tracker.started(5)
    tracker.finished(5)
    for offset in (5, 6):
        with pytest.raises(ValueError, match=f"offset {offset} is not under way"):
            tracker.finished(offset)


@examples(200)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.data())
def test_no_unfinished_record_is_ever_before_the_committable_offset(
    gaps: list[int], data: st.DataObject
) -> None:
    tracker = OffsetTracker()
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    waiting, unfinished, finished = list(offsets), set[int](), set[int]()
    last_committable = -1
    while waiting or unfinished:
        if waiting and (not unfinished or data.draw(st.booleans())):
            tracker.started(waiting[0])
            unfinished.add(waiting.pop(0))
        else:
            offset = data.draw(st.sampled_from(sorted(unfinished)))
            tracker.finished(offset)
            unfinished.remove(offset)
            finished.add(offset)
        before_first_unfinished = [o for o in finished if not unfinished or o < min(unfinished)]
        expected = max(before_first_unfinished) + 1 if before_first_unfinished else None
        assert tracker.committable() == expected
        assert (expected or -1) >= last_committable, "a commit never goes back"
        last_committable = expected or -1
        assert len(tracker) == len(unfinished | finished) - len(before_first_unfinished)
    assert tracker.committable() == offsets[-1] + 1
