import itertools

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.ranges import Span, holes, overlaps, spans_by_partition, union
from ottla.pipeline.spark.offsets import OffsetRange

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda pair: Span(pair[0], sum(pair))))


def test_ranges_are_sorted_by_partition_and_empty_ones_left_out() -> None:
    ranges = [OffsetRange("b", 0, 5, 9), OffsetRange("a", 1, 3, 3), OffsetRange("b", 0, 0, 5)]
    assert spans_by_partition(ranges) == {TopicPartition("b", 0): [Span(0, 5), Span(5, 9)]}


def test_a_span_is_printed_with_its_first_and_last_offset() -> None:
    assert (str(Span(4, 5)), str(Span(4, 9))) == ("4", "4 to 8")


@given(SPANS)
def test_a_union_has_the_same_offsets_in_spans_that_do_not_touch(spans: list[Span]) -> None:
    merged = union(spans)
    assert offsets(merged) == offsets(spans)
    assert all(one.end < other.start for one, other in itertools.pairwise(merged))


@given(SPANS)
def test_overlaps_are_the_offsets_of_more_than_one_span(spans: list[Span]) -> None:
    twice = {offset for offset in range(50) if sum(span.start <= offset < span.end for span in spans) > 1}
    assert offsets(overlaps(spans)) == twice


@given(SPANS, st.integers(0, 20), st.integers(0, 40))
def test_holes_are_the_offsets_of_no_span(spans: list[Span], start: int, end: int) -> None:
    assert offsets(holes(spans, start, end)) == set(range(start, end)) - offsets(spans)


def offsets(spans: list[Span]) -> set[int]:
    return {offset for span in spans for offset in range(span.start, span.end)}
