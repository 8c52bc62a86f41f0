import dataclasses

import pytest
from tests.unit.pipeline.archive.archive_samples import a_batch, a_file, an_archive

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.manifest import combine
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.reload.plan import (
    Plan,
    Times,
    check_unchanged,
    files_for,
    group_overlapping,
    make_plan,
    partitions_needed,
)
from ottla.pipeline.ingest.reload.settings import ReloadSettings
from ottla.pipeline.spark.offsets import OffsetRange

ARCHIVED = an_archive(("raw", 0, 0, 50), ("raw", 2, 10, 20), ("other", 0, 0, 5))
FIRST, THIRD = TopicPartition("raw", 0), TopicPartition("raw", 2)


def plan(**settings: object) -> Plan:
    return make_plan(ReloadSettings("archive", **settings), "/archive", ARCHIVED, "[sources.back]")  # type: ignore[arg-type]


def test_all_topics_are_loaded_if_none_is_named() -> None:
    assert set(plan().end) == {FIRST, THIRD, TopicPartition("other", 0)}


def test_offsets_limit_every_partition_to_what_it_has() -> None:
    found = plan(topics=("raw",), offset_from=15, offset_to=30)
    assert found.start == {FIRST: 15, THIRD: 15}
    assert found.end == {FIRST: 30, THIRD: 20}
    assert plan(topics=("raw",), offset_from=100).start == {FIRST: 50, THIRD: 20}


def test_times_without_a_zone_are_utc() -> None:
    found = plan(time_from="2026-01-31T12:00:00", time_to="2026-01-31T14:00:00+01:00")
    assert found.times == Times(1_769_860_800_000, 1_769_864_400_000)


def test_an_invalid_time_is_an_error_that_names_it() -> None:
    with pytest.raises(PipelineError, match=r"\[sources.back\]: `time_to` is 'noon'"):
        plan(time_to="noon")


def test_a_topic_that_is_not_archived_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(PipelineError, match=r"has no topic raws\. It has: other, raw\."):
        plan(topics=("raws",))


def test_a_plan_is_read_as_it_was_written() -> None:
    found = plan(topics=("raw",), time_from="2026-01-31T12:00:00Z")
    assert Plan.from_json(found.to_json()) == found


def test_a_load_that_has_begun_rejects_other_settings() -> None:
    begun = plan(topics=("raw",))
    same = ReloadSettings("archive", topics=("raw",), max_offsets_per_batch=5)
    check_unchanged(begun, same, "[sources.back]")
    with pytest.raises(PipelineError, match=r"`offset_to` was None when this load began, and is now 7"):
        check_unchanged(begun, dataclasses.replace(same, offset_to=7), "[sources.back]")


def test_a_topic_needs_as_many_partitions_as_the_archived_records_had() -> None:
    assert partitions_needed(plan()) == {"raw": 3, "other": 1}
    assert partitions_needed(plan(offset_to=5)) == {"raw": 1, "other": 1}


def test_only_files_that_may_have_records_of_the_range_are_read_in_the_order_of_offsets() -> None:
    late, early = a_file("a", (0, 20, 29), hour=8), a_file("b", (0, 0, 9), (2, 0, 99))
    between, foreign = a_file("c", (0, 10, 19), hour=9), a_file("d", (0, 0, 99), topic="other")
    archived = combine({1: a_batch(0, [], late, early, between, foreign)})
    assert files_for(OffsetRange("raw", 0, 9, 20), archived) == [early, between]
    assert files_for(OffsetRange("raw", 1, 0, 99), archived) == []


def test_files_whose_offsets_overlap_are_read_together() -> None:
    one, two, three = (
        a_file("a", (0, 0, 9)),
        a_file("b", (0, 5, 12), hour=8),
        a_file("c", (0, 13, 15), hour=9),
    )
    assert group_overlapping([one, two, three], 0) == [[one, two], [three]]
    assert group_overlapping([], 0) == []
