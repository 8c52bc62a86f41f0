"""A topic that is deleted and created again gets a history of its own in the archive."""

from dataclasses import replace

from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.condensed import Condensed, summary_from_json, summary_to_json
from ottla.pipeline.archive.coverage import (
    CREATED_AGAIN,
    HOLE,
    Extent,
    Logs,
    OffsetFinding,
    Report,
    check_coverage,
    check_current,
)
from ottla.pipeline.archive.histories import (
    archived_ends,
    current_histories,
    histories_in_order,
    histories_of,
    history_of,
)
from ottla.pipeline.archive.layout import topic_of
from ottla.pipeline.archive.manifest import Archived, combine, from_json, to_json
from ottla.pipeline.archive.merge import split_into_rounds
from ottla.pipeline.archive.ranges import Span
from ottla.pipeline.ingest.reload.plan import make_plan, partitions_needed
from ottla.pipeline.ingest.reload.settings import ReloadSettings

FIRST, SECOND = "Zm9vYmFyYmF6cXV4cXV1eA", "c2Vjb25kIGlkIG9mIGEgdA"
AGAIN = f"raw@{SECOND}"
BEFORE = replace(a_batch(0, [("raw", 0, 0, 10)]), topic_ids={"raw": FIRST})
AFTER = replace(a_batch(1, [(AGAIN, 0, 0, 4), (AGAIN, 1, 0, 2)]), topic_ids={AGAIN: SECOND})
OLD, BOTH = combine({1: BEFORE}), combine({1: BEFORE, 2: AFTER})
WITHOUT_IDS = combine({1: a_batch(0, [("raw", 0, 0, 10)])})


def test_histories_stay_in_the_order_in_which_they_were_archived() -> None:
    later = {f"raw@{name}": name for name in ("z", "b", "y")}
    batches = {
        number: replace(a_batch(number, [(history, 0, 0, 4)]), topic_ids={history: one})
        for number, (history, one) in enumerate(later.items(), 2)
    }
    archived = combine({**batches, 1: a_batch(0, [("raw", 0, 0, 10)])})
    # A manifest without the ids of the others, and a history that is archived once more
    archived = combine({6: batches[2], 7: AFTER}, archived)
    expected = ["raw", *later, AGAIN]
    assert histories_in_order(archived, "raw") == expected
    condensed = summary_from_json(summary_to_json(Condensed(1, archived)), 1, "here")
    assert histories_in_order(condensed.summary, "raw") == expected
    assert histories_in_order(archived, "other") == []


def test_each_id_of_a_topic_has_a_history() -> None:
    assert history_of(Archived(), "raw", FIRST) == "raw"
    assert history_of(OLD, "raw", FIRST) == "raw"
    assert history_of(OLD, "raw", SECOND) == history_of(BOTH, "raw", SECOND) == AGAIN
    assert (BOTH.topics, BOTH.histories) == (["raw"], ["raw", AGAIN])
    assert (histories_of(BOTH, "raw"), histories_of(BOTH, "ra")) == (["raw", AGAIN], [])
    assert topic_of(AGAIN) == topic_of("raw") == "raw"


def test_without_ids_there_is_one_history() -> None:
    assert history_of(OLD, "raw", None) == "raw"
    assert history_of(WITHOUT_IDS, "raw", SECOND) == "raw"


def test_a_topic_that_was_created_again_is_archived_from_its_beginning() -> None:
    at, other = TopicPartition("raw", 0), TopicPartition("raw", 1)
    assert archived_ends(OLD, current_histories(OLD, ["raw"], {"raw": FIRST})) == {at: 10}
    assert archived_ends(OLD, current_histories(OLD, ["raw"], {"raw": SECOND})) == {}
    assert archived_ends(BOTH, current_histories(BOTH, ["raw"], {"raw": SECOND})) == {at: 4, other: 2}


def test_a_manifest_keeps_the_ids_and_an_older_one_has_none() -> None:
    assert from_json(to_json(AFTER), "there") == AFTER
    older = to_json(WITHOUT_IDS_BATCH).replace('"topic_ids": {},', "")
    assert from_json(older, "there") == WITHOUT_IDS_BATCH


WITHOUT_IDS_BATCH = a_batch(0, [("raw", 0, 0, 10)])


def test_records_of_the_new_topic_are_missing_until_they_are_archived() -> None:
    at = TopicPartition(AGAIN, 0)
    logs = Logs({at: 0}, {at: 25}, {AGAIN: SECOND})
    assert check_current(OLD, logs) == [OffsetFinding(at, Span(0, 25), CREATED_AGAIN)]
    assert check_current(OLD, logs._replace(latest={at: 0})) == []
    assert check_current(BOTH, logs) == []
    # a new topic, of which nothing is archived yet
    assert check_current(Archived(), logs) == []


def test_a_history_with_a_hole_at_its_beginning_is_not_whole() -> None:
    late = combine({1: BEFORE, 2: replace(AFTER, ranges=(AFTER.ranges[0]._replace(start=2),))})
    at = TopicPartition(AGAIN, 0)
    assert check_coverage(late, late.histories, {at: 0}) == [OffsetFinding(at, Span(0, 2), HOLE)]


def test_a_report_says_if_the_archive_does_not_have_the_id() -> None:
    extent = Extent(TopicPartition("raw", 0), 0, 10, 10, 0, 10)
    report = Report((extent,), (), (), is_deep=False, unknown_ids=("raw",))
    assert "raw: the archive does not have the id of this topic" in report.sentences()[1]
    assert not any("id" in line for line in replace(report, is_deep=True).sentences()[1:2])


def test_a_merge_keeps_the_histories_apart() -> None:
    files = [a_file("x", (0, 0, 1)), a_file("x", (0, 0, 1), topic=AGAIN)]
    rounds = split_into_rounds({file.hour: [file] for file in files})
    assert [[file.topic for file in one] for one in rounds] == [["raw"], [AGAIN]]


def test_a_reload_of_a_topic_loads_all_its_histories() -> None:
    plan = make_plan(ReloadSettings("archive", topics=("raw",)), "archive", BOTH, "[sources.again]")
    assert plan.end == {
        TopicPartition("raw", 0): 10,
        TopicPartition(AGAIN, 0): 4,
        TopicPartition(AGAIN, 1): 2,
    }
    assert partitions_needed(plan) == {"raw": 2}
