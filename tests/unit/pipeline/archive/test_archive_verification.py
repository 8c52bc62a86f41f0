from dataclasses import replace

import pytest
from tests.unit.pipeline.archive.archive_samples import a_batch, a_file, an_archive

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.coverage import (
    DELETED,
    HOLE,
    NOTHING,
    TWICE,
    Coverage,
    Extent,
    Logs,
    OffsetFinding,
    Report,
    check_coverage,
    check_partitions,
    partition_coverage,
    report_of,
)
from ottla.pipeline.archive.manifest import Manifest, Merge, combine
from ottla.pipeline.archive.ranges import Span
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.verification import Content, check_lists, compare_file, spans_of

AT = TopicPartition("raw", 0)


def test_adjacent_ranges_have_no_hole() -> None:
    assert check_coverage(an_archive(("raw", 0, 5, 9), ("raw", 0, 0, 5)), ["raw"], {AT: 0}) == []


def test_deleted_offsets_of_a_hole_are_reported_separately() -> None:
    archived = an_archive(("raw", 0, 0, 10), ("raw", 0, 30, 40))
    assert check_coverage(archived, ["raw"], {AT: 18}) == [
        OffsetFinding(AT, Span(10, 18), DELETED),
        OffsetFinding(AT, Span(18, 30), HOLE),
    ]


def test_offsets_that_the_topic_has_before_the_archive_are_a_hole() -> None:
    assert check_coverage(an_archive(("raw", 0, 7, 9)), ["raw"], {AT: 2}) == [
        OffsetFinding(AT, Span(2, 7), HOLE)
    ]


def test_offsets_that_were_deleted_before_the_archive_are_not_a_hole() -> None:
    assert check_coverage(an_archive(("raw", 0, 7, 9)), ["raw"], {AT: 7}) == []


def test_a_deleted_topic_is_verified_by_the_archive_alone() -> None:
    archived = an_archive(("raw", 0, 7, 9), ("raw", 0, 11, 12))
    assert check_coverage(archived, ["raw"], {}) == [OffsetFinding(AT, Span(9, 11), HOLE)]


def test_offsets_that_two_batches_cover_are_duplicates() -> None:
    archived = an_archive(("raw", 0, 0, 10), ("raw", 0, 8, 12))
    assert check_coverage(archived, ["raw"], {AT: 0}) == [OffsetFinding(AT, Span(8, 10), TWICE)]


@pytest.mark.parametrize(
    ("archived", "log", "wanted"),
    [
        # Nothing is archived yet, or nothing is there
        ([], Span(3, 10), (7, 0, 0, 0)),
        ([], Span(4, 4), (0, 0, 0, 0)),
        # Archived so far, in two batches
        ([Span(0, 5), Span(5, 8)], Span(0, 10), (10, 8, 0, 0)),
        # Offsets that the topic no longer has count neither as its own nor as covered
        ([Span(0, 8)], Span(6, 10), (4, 2, 0, 0)),
        ([Span(0, 8)], Span(9, 10), (1, 0, 0, 0)),
        # Two holes: of the first the topic has lost a part since
        ([Span(0, 2), Span(6, 7), Span(9, 12)], Span(4, 12), (8, 4, 2, 6)),
        # The topic has offsets before the archive
        ([Span(5, 9)], Span(2, 9), (7, 4, 1, 3)),
        # Twice is once, and an archive may be longer than a topic that was truncated
        ([Span(0, 6), Span(4, 9)], Span(0, 7), (7, 7, 0, 0)),
    ],
)
def test_the_coverage_of_a_partition(
    archived: list[Span], log: Span, wanted: tuple[int, int, int, int]
) -> None:
    assert partition_coverage(TopicPartition("raw@id", 0), archived, log) == Coverage(AT, *wanted)


def test_a_partition_and_a_topic_of_which_nothing_is_archived_are_reported() -> None:
    archived = an_archive(("raw", 0, 0, 10))
    more, new, empty = TopicPartition("raw", 1), TopicPartition("fly", 0), TopicPartition("fly", 1)
    logs = Logs({AT: 0, more: 3, new: 0, empty: 7}, {AT: 12, more: 5, new: 4, empty: 7}, {})
    assert check_partitions(archived, logs) == [
        OffsetFinding(more, Span(3, 5), NOTHING),
        OffsetFinding(new, Span(0, 4), NOTHING),
    ]
    report = report_of(archived, ["raw", "fly"], logs, [])
    assert not report.is_whole
    assert report.sentences() == [
        "fly-0 offset 0 to 3: nothing of the partition is archived yet.",
        "raw-1 offset 3 to 4: nothing of the partition is archived yet.",
        "raw-0: offsets 0 to 9, 0 records: every offset once, 2 newer offsets are not archived yet.",
        "The archive is not whole.",
    ]
    # One that was created again has a finding of its own.
    again = Logs({TopicPartition("raw@2", 0): 0}, {TopicPartition("raw@2", 0): 4}, {})
    assert check_partitions(archived, again) == []


def test_lists_that_lack_files_of_the_batches_are_reported() -> None:
    first, second = a_file("a", (0, 0, 9), (1, 0, 3)), a_file("b", (0, 10, 14))
    merge = Merge(99, (a_file("m", (0, 0, 14), (1, 0, 3)),), (first.path, second.path))
    history: dict[int, Manifest] = {
        1: a_batch(0, [("raw", 0, 0, 15), ("raw", 1, 0, 4)], first, second),
        2: merge,
    }
    for archived in (combine({1: history[1]}), combine(history)):
        assert check_lists(archived, ["raw"], "there") == []
        lacking = replace(archived, files={})
        assert [str(one) for one in check_lists(lacking, ["raw"], "there")] == [
            "there: the files that it names have 0 records of raw-0, and batches added 15.",
            "there: the files that it names have 0 records of raw-1, and batches added 4.",
        ]
        assert check_lists(lacking, ["fly"], "there") == []
    twice = replace(combine(history), files={one.path: one for one in (*merge.files, second)})
    assert [one.what for one in check_lists(twice, ["raw"], "there")] == [
        "the files that it names have 20 records of raw-0, and batches added 15"
    ]


def test_a_file_is_compared_with_its_manifest() -> None:
    file = a_file("x", (0, 0, 9), (1, 5, 5))
    right = {0: Content(Slice(0, 9, 10), 0), 1: Content(Slice(5, 5, 1), 0)}
    assert compare_file(file, right) is None
    assert compare_file(file, {}) == "it cannot be read; the manifest says that it holds 11 records"
    assert compare_file(file, right | {0: Content(Slice(0, 9, 9), 0)}) == (
        "of partition 0 it holds 9 records, offsets 0 to 9, its manifest says 10 records, offsets 0 to 9"
    )
    assert "partition 2 it holds 1 records" in str(
        compare_file(file, right | {2: Content(Slice(1, 1, 1), 0)})
    )
    assert "are not in order" in str(compare_file(file, right | {0: Content(Slice(0, 9, 10), 2)}))


def test_single_offsets_are_joined_into_spans() -> None:
    assert spans_of([(1, 4), (0, 3), (0, 1), (0, 2)]) == [(0, Span(1, 4)), (1, Span(4, 5))]


def test_a_report_names_partition_and_offsets() -> None:
    extent = Extent(AT, 0, 40, 20, 0, 40)
    whole = Report((extent,), (), (), is_deep=False)
    assert whole.sentences()[0] == "raw-0: offsets 0 to 39, 20 records: every offset once."
    report = Report((extent,), (OffsetFinding(AT, Span(10, 30), HOLE),), (), is_deep=False)
    assert report.sentences() == [
        "raw-0 offset 10 to 29: not archived.",
        "raw-0: offsets 0 to 39, 20 records: see above.",
        "The archive is not whole.",
    ]


def test_a_report_counts_offsets_that_are_not_archived_yet() -> None:
    behind = Report((Extent(AT, 0, 40, 40, 0, 50),), (), (), is_deep=True)
    assert behind.is_whole
    assert behind.sentences()[0].endswith("every offset once, 10 newer offsets are not archived yet.")
    assert Report((), (), (), is_deep=True).sentences() == ["Nothing is archived yet."]
