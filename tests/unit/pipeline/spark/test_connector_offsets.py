"""Offsets of `format("ottla")`: their JSON, the limit of a batch, and how ranges are split."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import (
    OffsetRange,
    Position,
    count_offsets,
    from_json,
    limited,
    parse_assignment,
    parse_offsets,
    ranges_between,
    split,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 1000), max_size=8)


def test_offsets_are_written_as_sparks_kafka_source_writes_them() -> None:
    assert json.dumps(to_json({B0: 7, A1: 5, A0: 23})) == '{"a": {"0": 23, "1": 5}, "b": {"0": 7}}'


@given(offsets)
def test_offsets_are_the_same_after_json(some: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(some)))) == some


def test_a_checkpoint_has_the_ids_of_topics_and_the_start_of_the_first_batch_beside_the_offsets() -> None:
    position = Position({A0: 23}, {"a": "Xy_z"}, start={A0: 7})
    written = json.loads(json.dumps(position.to_json()))
    assert Position.from_json(written) == position
    assert from_json(written) == {A0: 23}
    assert Position.from_json({"a": {"0": 23}}) == Position({A0: 23}, topic_ids=None, start=None)


def test_the_options_json_may_name_both_ends_of_the_log() -> None:
    assert parse_offsets("startingOffsets", '{"a": {"0": 23, "1": -2}}') == {A0: 23, A1: -2}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"a": 3}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}'])
def test_invalid_json_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(PipelineError, match=r"startingOffsets.*Give JSON as in"):
        parse_offsets("startingOffsets", text)


def test_an_assignment_names_partitions() -> None:
    assert parse_assignment('{"a": [0, 1], "b": [0]}') == {A0, A1, B0}


@pytest.mark.parametrize("text", ["", "{}", '{"a": 0}', '{"a": ["0"]}', "[0]"])
def test_an_invalid_assignment_is_rejected(text: str) -> None:
    with pytest.raises(PipelineError, match="assign"):
        parse_assignment(text)


def test_a_limit_is_divided_in_proportion_to_new_offsets() -> None:
    assert limited({A0: 0, A1: 100}, {A0: 300, A1: 200}, 100) == {A0: 75, A1: 125}


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}, 10)[A1] == 1


def test_a_batch_below_the_limit_takes_all() -> None:
    assert limited({A0: 0}, {A0: 10}, 10) == {A0: 10}


@given(offsets, offsets, st.integers(1, 50))
def test_a_limited_batch_makes_progress_and_stays_within_its_ends(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], rows_max: int
) -> None:
    taken = limited(start, end, rows_max)
    assert taken.keys() == end.keys()
    assert all(min(start.get(at, offset), offset) <= taken[at] <= offset for at, offset in end.items())
    assert count_offsets(start, taken) <= rows_max + len(end)
    assert count_offsets(start, taken) > 0 or count_offsets(start, end) == 0


def test_a_partition_that_is_new_is_read_by_the_next_batch() -> None:
    assert ranges_between({A0: 3}, {A0: 5, A1: 9}) == [OffsetRange("a", 0, 3, 5)]
    assert ranges_between({A0: 5, A1: 9}, {A0: 5, A1: 12}) == [OffsetRange("a", 1, 9, 12)]


def test_a_truncated_log_has_no_range() -> None:
    assert ranges_between({A0: 5}, {A0: 3}) == []


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(1, 20), st.none() | st.integers(1, 50))
def test_ranges_are_split_into_enough_adjacent_parts(
    sizes: list[int], partitions_min: int, size_max: int | None
) -> None:
    ranges = [OffsetRange("a", number, 7, 7 + count) for number, count in enumerate(sizes) if count]
    parts = split(ranges, partitions_min, size_max)
    assert len(parts) >= min(partitions_min, sum(sizes))
    assert all(0 < part.size <= (size_max or part.size) for part in parts)
    for whole in ranges:
        mine = [part for part in parts if part.partition == whole.partition]
        assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
        assert all(one.end == other.start for one, other in pairwise(mine))


def test_enough_ranges_stay_as_they_are() -> None:
    ranges = [OffsetRange("a", 0, 0, 100), OffsetRange("a", 1, 0, 1)]
    assert split(ranges, 2) == split(ranges, 2, 100) == ranges
