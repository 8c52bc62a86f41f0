import pytest
from tests.unit.pipeline.archive.archive_samples import an_archive

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.batch_writer import batch_ranges, expected_records
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.stage import starting_offsets
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import EARLIEST, OffsetRange, Offsets

AT = TopicPartition("raw", 0)


@pytest.mark.parametrize(
    ("start", "end", "earliest", "first", "covered"),
    [
        pytest.param(10, 20, 0, 10, (10, 20), id="all of it"),
        pytest.param(10, 20, 0, 14, (10, 20), id="a hole at the beginning that compaction left"),
        pytest.param(10, 20, 0, None, (10, 20), id="control records only"),
        pytest.param(10, 20, 15, 10, (10, 20), id="deleted after it was read"),
        pytest.param(10, 20, 15, 15, (15, 20), id="deleted before it was read"),
        pytest.param(10, 20, 15, 17, (15, 20), id="deleted before it was read, with a hole behind"),
        pytest.param(10, 20, 30, None, None, id="deleted altogether"),
        pytest.param(None, 20, 5, 5, (5, 20), id="the first batch of a topic that begins later"),
        pytest.param(None, 20, 5, 9, (5, 20), id="the first batch, with a hole at the beginning"),
        pytest.param(None, 20, 9, 5, (5, 20), id="the first batch, deleted after it was read"),
        pytest.param(None, 0, 0, None, None, id="a partition that enters empty"),
        pytest.param(7, 7, 0, None, None, id="nothing new"),
    ],
)
def test_a_batch_covers_what_was_read_and_what_never_had_records(
    start: int | None, end: int, earliest: int, first: int | None, covered: tuple[int, int] | None
) -> None:
    before: Offsets = {} if start is None else {AT: start}
    found = batch_ranges(before, {AT: end}, {AT: earliest}, {} if first is None else {AT: first})
    assert found == (() if covered is None else (OffsetRange(*AT, *covered),))


def test_a_batch_expects_as_many_records_as_its_offsets() -> None:
    assert expected_records({AT: 5}, {AT: 25, TopicPartition("raw", 1): 7}) == 27


def test_a_new_query_starts_after_the_archived_offsets() -> None:
    archived = an_archive(("raw", 0, 0, 10), ("raw", 1, 0, 10))
    other, new = TopicPartition("raw", 1), TopicPartition("raw", 2)
    earliest, latest = {AT: 0, other: 30, new: 3}, {AT: 50, other: 50, new: 50}
    assert starting_offsets(archived, earliest, latest) == {AT: 10, other: 30, new: EARLIEST}
    assert starting_offsets(Archived(), earliest, latest) == dict.fromkeys(earliest, EARLIEST)


def test_a_topic_that_was_created_again_is_rejected() -> None:
    with pytest.raises(PipelineError, match="raw-0 is archived up to offset 10, but ends at 4"):
        starting_offsets(an_archive(("raw", 0, 0, 10)), {AT: 0}, {AT: 4})
