"""The new offset of each kind of reset; no offset is ever outside of its log."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.admin.reset_plan import (
    PartitionOffsets,
    PlannedReset,
    ResetError,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToListedOffsets,
    ToOffset,
    ToTime,
    plan_reset,
)
from ottla.model.ids import TopicPartition

PARTITION = TopicPartition("orders", 0)
KNOWN = PartitionOffsets(earliest=10, latest=50, committed=30, at_time=20)
OFFSETS = st.integers(0, 2**63 - 1)


def planned(target: Target, known: PartitionOffsets = KNOWN) -> tuple[int, str | None]:
    (line,) = plan_reset(target, {PARTITION: known})
    return line.new_offset, line.note


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (ToEarliest(), 10),
        (ToLatest(), 50),
        (ToCurrent(), 30),
        (ToOffset(10), 10),
        (ToOffset(50), 50),
        (ShiftBy(5), 35),
        (ShiftBy(-20), 10),
        (ToTime(1_000), 20),
        (ToListedOffsets({PARTITION: 42}), 42),
    ],
)
def test_each_target_has_its_offset_and_no_note(target: Target, offset: int) -> None:
    assert planned(target) == (offset, None)


@pytest.mark.parametrize("target", [ToOffset(51), ShiftBy(21), ToListedOffsets({PARTITION: 51})])
def test_an_offset_after_the_end_becomes_the_end_with_a_note(target: Target) -> None:
    assert planned(target) == (50, "offset 51 is after the log end offset: 50 is used")


@pytest.mark.parametrize("target", [ToOffset(9), ShiftBy(-21), ToListedOffsets({PARTITION: 9})])
def test_an_offset_before_the_first_becomes_the_first_with_a_note(target: Target) -> None:
    assert planned(target) == (10, "offset 9 is before the earliest offset: 10 is used")


def test_a_time_after_every_record_is_the_end() -> None:
    assert planned(ToTime(1), KNOWN._replace(at_time=None)) == (
        50,
        "no record is so late: the log end offset is used",
    )


def test_the_current_offset_is_the_end_if_nothing_is_committed() -> None:
    offset, note = planned(ToCurrent(), KNOWN._replace(committed=None))
    assert offset == 50
    assert note is not None
    assert "no offset is committed" in note


def test_a_shift_without_a_committed_offset_is_rejected() -> None:
    with pytest.raises(ResetError, match="orders-0 cannot be shifted: the group has no committed offset"):
        planned(ShiftBy(1), KNOWN._replace(committed=None))


def test_a_plan_is_sorted_and_has_the_committed_offsets() -> None:
    known = {
        TopicPartition("b", 0): KNOWN,
        TopicPartition("a", 10): KNOWN._replace(committed=None),
        TopicPartition("a", 2): KNOWN,
    }
    assert plan_reset(ToEarliest(), known) == [
        PlannedReset("a", 2, 30, 10, None),
        PlannedReset("a", 10, None, 10, None),
        PlannedReset("b", 0, 30, 10, None),
    ]


@st.composite
def partition_offsets(draw: st.DrawFn) -> PartitionOffsets:
    """As a broker reports them. The committed offset may be older than a deletion of records or of the topic."""
    earliest, latest = sorted((draw(OFFSETS), draw(OFFSETS)))
    at_time = draw(st.none() | st.integers(earliest, latest))
    return PartitionOffsets(earliest, latest, draw(OFFSETS), at_time)


PARTITIONS = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5))
KNOWN_OFFSETS = st.dictionaries(PARTITIONS, partition_offsets(), max_size=6)
TARGETS: st.SearchStrategy[Target] = st.one_of(
    st.just(ToEarliest()),
    st.just(ToLatest()),
    st.just(ToCurrent()),
    st.builds(ToOffset, OFFSETS),
    st.builds(ShiftBy, st.integers(-(2**63), 2**63)),
    st.builds(ToTime, st.integers()),
    st.builds(ToListedOffsets, st.just({})),
)


@examples(300)
@given(TARGETS, KNOWN_OFFSETS, st.data())
def test_new_offsets_are_always_inside_of_the_log(
    target: Target, known: dict[TopicPartition, PartitionOffsets], data: st.DataObject
) -> None:
    if isinstance(target, ToListedOffsets):
        target = replace(target, offsets={partition: data.draw(OFFSETS) for partition in known})
    plan = plan_reset(target, known)
    assert [line.topic_partition for line in plan] == sorted(known)
    for line in plan:
        offsets = known[line.topic_partition]
        assert offsets.earliest <= line.new_offset <= offsets.latest
        assert line.committed == offsets.committed


@examples(200)
@given(TARGETS, KNOWN_OFFSETS, st.data())
def test_an_exported_plan_gives_the_same_plan_again(
    target: Target, known: dict[TopicPartition, PartitionOffsets], data: st.DataObject
) -> None:
    if isinstance(target, ToListedOffsets):
        target = replace(target, offsets={partition: data.draw(OFFSETS) for partition in known})
    plan = plan_reset(target, known)
    again = plan_reset(ToListedOffsets({line.topic_partition: line.new_offset for line in plan}), known)
    assert again == [line._replace(note=None) for line in plan]


@examples(200)
@given(partition_offsets(), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_longer_shift_never_goes_less_far_than_a_shorter_one(
    known: PartitionOffsets, one: int, other: int
) -> None:
    shorter, longer = sorted((one, other))
    assert planned(ShiftBy(shorter), known)[0] <= planned(ShiftBy(longer), known)[0]
    assert planned(ShiftBy(-longer), known)[0] <= planned(ShiftBy(-shorter), known)[0]
