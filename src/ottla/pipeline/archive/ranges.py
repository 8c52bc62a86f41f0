"""Arithmetic of offset ranges: the union of ranges of a partition, their holes and overlaps."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.spark.offsets import OffsetRange


class Span(NamedTuple):
    """Offsets of one partition, from `start` up to but not including `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return str(self.start) if self.end - self.start == 1 else f"{self.start} to {self.end - 1}"


def spans_by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[Span]]:
    """The ranges of each partition, sorted, without empty ones."""
    spans: dict[TopicPartition, list[Span]] = {}
    for one in sorted(ranges):
        if one.size > 0:
            spans.setdefault(one.at, []).append(Span(one.start, one.end))
    return spans


def union(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as possible."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def overlaps(spans: Iterable[Span]) -> list[Span]:
    """Offsets that more than one span covers."""
    shared: list[Span] = []
    end = -1
    for span in sorted(spans):
        if span.start < end:
            shared.append(Span(span.start, min(span.end, end)))
        end = max(end, span.end)
    return union(shared)


def holes(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """Offsets from `start` up to but not including `end` that no span covers."""
    missing: list[Span] = []
    at = start
    for span in union(spans):
        if span.start > at and at < end:
            missing.append(Span(at, min(span.start, end)))
        at = max(at, span.end)
    if at < end:
        missing.append(Span(at, end))
    return missing
