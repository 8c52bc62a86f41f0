"""The plan of a replay: what comes from where, in which order, and what nobody has."""

from dataclasses import replace

import pytest
from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.manifest import Archived, combine
from ottla.pipeline.archive.ranges import Span
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.replay.plan import (
    Held,
    Log,
    Plan,
    Wanted,
    compared_ranges,
    describe_missing,
    firsts_since,
    make_plan,
    next_earlier,
    split_range,
)
from ottla.pipeline.spark.offsets import OffsetRange, Offsets

RAW = TopicPartition("raw", 0)
# the hour of `a_file`'s default, 07:00 to 08:00
HALF_PAST_SEVEN_MS = 1_769_844_600_000


def log(earliest: int, end: int, *, start: int | None = None, topic_id: str | None = "one") -> Log:
    """Of one partition."""
    return Log(topic_id, {0: earliest}, {0: earliest if start is None else start}, {0: end})


def archive(*ranges: tuple[str, int, int, int], **topic_ids: str) -> Archived:
    """The ids are those of the histories, in the order in which they were archived; `second` stands for raw@two."""
    names = {"raw": "raw", "second": "raw@two", "third": "raw@three"}
    ids = {names[name]: one for name, one in topic_ids.items()}
    return combine({1: replace(a_batch(0, ranges), topic_ids=ids)})


def plan_of(raw: Log | None, archived: Archived | None, firsts: Offsets | None = None) -> Plan:
    """With `firsts` the replay starts at a time."""
    logs = {} if raw is None else {"raw": raw}
    held = {} if archived is None else {"raw": Held("/archive", archived, firsts)}
    return make_plan(logs, held, None if firsts is None else 5)


def test_a_topic_that_has_everything_is_read_from_its_earliest_offset() -> None:
    plan = plan_of(log(0, 50), archive(("raw", 0, 0, 40), raw="one"))
    assert (plan.start, plan.earlier, plan.missing) == ({RAW: 0}, (), ())


def test_a_replay_starts_at_the_first_archived_offset_that_the_topic_has_deleted() -> None:
    plan = plan_of(log(30, 50), archive(("raw", 0, 10, 40), raw="one"))
    assert plan.start == {RAW: 10}
    assert plan.missing == (OffsetRange("raw", 0, 0, 10),)
    assert (plan.paths, plan.histories) == ({"raw": "/archive"}, {"raw": "raw"})


def test_holes_that_the_topic_still_has_are_not_missing() -> None:
    plan = plan_of(log(30, 60), archive(("raw", 0, 0, 10), ("raw", 0, 20, 25), ("raw", 0, 50, 55), raw="one"))
    assert plan.missing == (OffsetRange("raw", 0, 10, 20), OffsetRange("raw", 0, 25, 30))
    assert list(describe_missing(plan)) == [
        "Not replayed: raw-0 offset 10 to 19, 10 in all. The topic has deleted them, and no archive has them.",
        "Not replayed: raw-0 offset 25 to 29, 5 in all. The topic has deleted them, and no archive has them.",
    ]


def test_without_an_archive_a_replay_starts_at_the_earliest_offset_and_says_what_is_missing() -> None:
    plan = plan_of(log(30, 50), None)
    assert (plan.start, plan.paths) == ({RAW: 30}, {})
    assert plan.missing == (OffsetRange("raw", 0, 0, 30),)
    late = make_plan({"raw": log(30, 50, start=40)}, {}, 5)
    assert (late.start, late.missing) == ({RAW: 40}, ())
    early = make_plan({"raw": log(30, 50, start=30)}, {}, 5)
    assert (early.start, early.missing) == ({RAW: 30}, (OffsetRange("raw", 0, 0, 30),))


def test_a_time_in_the_archived_part_starts_there_and_a_later_one_in_the_topic() -> None:
    archived = archive(("raw", 0, 0, 10), ("raw", 0, 15, 40), raw="one")
    plan = plan_of(log(30, 50, start=30), archived, {RAW: 20})
    # The hole before an older record does not matter.
    assert (plan.start, plan.missing, plan.time_ms) == ({RAW: 20}, (), 5)
    # Offset 35 is archived, but the topic has it too, and its lookup found it.
    assert plan_of(log(30, 50, start=35), archived, {RAW: 35}).start == {RAW: 35}
    assert plan_of(log(30, 50, start=45), archived, {}).start == {RAW: 45}


def test_a_hole_just_before_the_first_late_record_may_have_had_late_ones() -> None:
    archived = archive(("raw", 0, 0, 10), ("raw", 0, 20, 30), raw="one")
    plan = plan_of(log(40, 50, start=40), archived, {RAW: 20})
    assert plan.missing == (OffsetRange("raw", 0, 10, 20), OffsetRange("raw", 0, 30, 40))
    plan = plan_of(log(40, 50, start=40), archived, {})
    assert (plan.start, plan.missing) == ({RAW: 40}, (OffsetRange("raw", 0, 30, 40),))


def test_a_topic_that_is_gone_is_read_from_its_archive() -> None:
    plan = plan_of(None, archive(("raw", 0, 5, 40), ("raw", 1, 0, 7), raw="one"))
    assert (plan.start, plan.histories) == ({}, {})
    assert plan.earlier == (OffsetRange("raw", 0, 5, 40), OffsetRange("raw", 1, 0, 7))
    assert plan.missing == (OffsetRange("raw", 0, 0, 5),)


THREE = archive(
    ("raw", 0, 0, 40), ("raw@two", 0, 0, 7), ("raw@three", 0, 0, 9), raw="one", third="three", second="two"
)


def test_earlier_histories_are_read_in_the_order_in_which_they_were_archived() -> None:
    plan = plan_of(None, THREE)
    assert [one.topic for one in plan.earlier] == ["raw", "raw@three", "raw@two"]
    plan = plan_of(log(2, 9, topic_id="two"), THREE)
    assert [one.topic for one in plan.earlier] == ["raw", "raw@three"]
    assert (plan.start, plan.histories, plan.topic_ids) == ({RAW: 0}, {"raw": "raw@two"}, {"raw": "two"})
    # It was created again, and nothing of it is archived yet.
    plan = plan_of(log(2, 9, topic_id="four"), THREE)
    assert len(plan.earlier) == 3
    assert (plan.start, plan.histories) == ({RAW: 2}, {"raw": "raw@four"})
    assert plan.missing == (OffsetRange("raw@four", 0, 0, 2),)


def test_of_earlier_histories_only_records_that_are_late_enough_are_read() -> None:
    plan = plan_of(log(0, 9, topic_id="two"), THREE, {TopicPartition("raw@three", 0): 4})
    assert plan.earlier == (OffsetRange("raw@three", 0, 4, 9),)


def test_a_topic_that_is_shorter_than_its_archive_is_an_error() -> None:
    with pytest.raises(PipelineError, match="raw-0 is archived up to offset 40, but ends at 30"):
        plan_of(log(0, 30), archive(("raw", 0, 0, 40)))
    with pytest.raises(PipelineError, match="raw-1 is archived up to offset 4, but ends at 0"):
        plan_of(log(0, 30), archive(("raw", 1, 0, 4)))


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = plan_of(log(2, 9, topic_id="two"), THREE, {RAW: 3})
    assert plan.earlier
    assert Plan.from_json(plan.to_json()) == plan


def test_topics_without_an_archive_are_planned_beside_those_with_one() -> None:
    held = {"raw": Held("/archive", archive(("raw", 0, 0, 40), raw="one"))}
    plan = make_plan({"raw": log(30, 50), "other": log(3, 5, topic_id="o")}, held, None)
    assert plan.start == {RAW: 0, TopicPartition("other", 0): 3}
    assert (plan.histories, plan.missing) == ({"raw": "raw"}, (OffsetRange("other", 0, 0, 3),))


def test_the_first_offset_of_a_time_is_looked_up_in_files_of_its_hour_only() -> None:
    before = a_file("a", (0, 0, 9), (1, 0, 4), hour=6)
    same = a_file("b", (0, 10, 19), (1, 5, 9))
    after = a_file("c", (0, 20, 29), (1, 3, 3), (2, 7, 7), hour=8)
    asked: list[str] = []

    def read_firsts(file: object) -> dict[int, int]:
        assert file is same
        asked.append("b")
        return {0: 15}

    found = firsts_since([after, same, before], HALF_PAST_SEVEN_MS, read_firsts)
    assert found == {RAW: 15, TopicPartition("raw", 1): 3, TopicPartition("raw", 2): 7}
    assert asked == ["b"]


def test_a_history_is_finished_before_the_next_one_of_its_topic_begins() -> None:
    earlier = (
        OffsetRange("a", 0, 10, 20),
        OffsetRange("a", 1, 0, 5),
        OffsetRange("a@2", 0, 0, 8),
        OffsetRange("b", 0, 0, 4),
    )
    done = {one.at: one.start for one in earlier}
    steps = []
    while (following := next_earlier(earlier, done, 10)) != done:
        steps.append([following[one.at] for one in earlier])
        done = following
    assert steps == [[15, 2, 0, 2], [20, 5, 0, 4], [20, 5, 8, 4]]
    assert list(next_earlier(earlier, {one.at: one.start for one in earlier}, None).values()) == [20, 5, 0, 4]
    assert next_earlier((), {}, 10) == {}


@pytest.mark.parametrize(
    ("earliest", "archived", "topic"),
    [(0, (10, 10), (10, 20)), (10, (10, 10), (10, 20)), (15, (10, 15), (15, 20)), (99, (10, 20), (20, 20))],
)
def test_a_range_is_divided_at_the_earliest_offset_of_the_topic(
    earliest: int, archived: tuple[int, int], topic: tuple[int, int]
) -> None:
    found = split_range(OffsetRange("raw", 0, 10, 20), earliest, [Span(0, 30)], [])
    assert found == (OffsetRange("raw", 0, *archived), OffsetRange("raw", 0, *topic), [])


def test_what_was_missing_at_the_start_is_not_lost_and_what_is_missing_since_is() -> None:
    wanted = OffsetRange("raw", 0, 10, 30)
    spans = [Span(0, 12), Span(15, 20)]
    assert split_range(wanted, 25, spans, [Span(12, 15)])[2] == [Span(20, 25)]
    assert split_range(wanted, 20, spans, [Span(12, 15)])[2] == []


def test_what_was_read_is_compared_without_what_is_missing() -> None:
    plan = plan_of(log(30, 60), archive(("raw", 0, 5, 10), ("raw", 0, 20, 40), raw="one"))
    assert compared_ranges(plan, {"raw": {0: 55}}) == {"raw": {0: [Wanted(5, 10), Wanted(20, 55)]}}
    # The topic was deleted since, so the replay is going to fail.
    assert compared_ranges(plan, {}) == {"raw": {0: []}}


def test_if_a_topic_has_several_histories_only_times_tell_apart_records_that_were_not_wanted() -> None:
    plan = plan_of(log(2, 9, topic_id="two"), THREE, {RAW: 30})
    assert compared_ranges(plan, {"raw": {0: 9}}) == {"raw": {0: [Wanted(30, 40, 5), Wanted(2, 9, 5)]}}
    plan = plan_of(log(2, 9, topic_id="two"), THREE)
    assert compared_ranges(plan, {"raw": {0: 9}}) == {"raw": {0: [Wanted(0, 40), Wanted(0, 9), Wanted(0, 9)]}}
