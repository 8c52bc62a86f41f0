"""Offsets of many partitions: their JSON, the limits of a batch, and its division into tasks.

What a batch reads depends only on its start and end offsets, so it reads the same when it runs again.
"""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError

EARLIEST = -2
LATEST = -1

# Other entries beside the topics in a checkpoint start with this character, which no topic name can contain.
EXTRA_PREFIX = "@"
_START, _TOPIC_IDS = f"{EXTRA_PREFIX}start", f"{EXTRA_PREFIX}topicIds"


Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The records from `start` up to but not including `end`. There may be fewer than the difference."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As in the checkpoints of Spark's Kafka source: {"topic": {"0": 23}}."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        if not topic.startswith(EXTRA_PREFIX)
        for partition, offset in partitions.items()
    }


class Position(NamedTuple):
    """Where a batch of a stream ends, as its checkpoint holds it."""

    offsets: Offsets
    # KIP-516's ids of the topics; None before the first batch, and in checkpoints of other sources
    topic_ids: Mapping[str, str] | None = None
    # Where the batch starts, if not at the end of the last one: the first batch, and one that reads a topic that was
    # created again. Spark does not store the start of the first batch, and asks again if the batch runs again.
    start: Offsets | None = None

    def to_json(self) -> dict[str, Any]:
        extra: dict[str, Any] = {} if self.topic_ids is None else {_TOPIC_IDS: dict(self.topic_ids)}
        if self.start is not None:
            extra[_START] = to_json(self.start)
        return {**to_json(self.offsets), **extra}

    @classmethod
    def from_json(cls, topics: Mapping[str, Any]) -> "Position":
        start = topics.get(_START)
        return cls(from_json(topics), topics.get(_TOPIC_IDS), None if start is None else from_json(start))


def parse_offsets(option: str, text: str) -> Offsets:
    """The JSON of an option such as startingOffsets."""
    try:
        topics = json.loads(text)
        offsets = from_json(topics)
    except (ValueError, AttributeError, TypeError):
        offsets = {}
    if not offsets or not all(type(offset) is int for offset in offsets.values()):
        raise PipelineError(
            f"The option `{option}` is {text!r}.", 'Give JSON as in {"topic": {"0": 23, "1": -2}}.'
        )
    return offsets


def parse_assignment(text: str) -> set[TopicPartition]:
    """The JSON of the option assign: {"topic": [0, 1]}."""
    try:
        topics: Any = json.loads(text)
        chosen = {
            TopicPartition(topic, partition)
            for topic, partitions in topics.items()
            for partition in partitions
        }
    except (ValueError, AttributeError, TypeError):
        chosen = set()
    if not chosen or not all(type(at.partition) is int for at in chosen):
        raise PipelineError(f"The option `assign` is {text!r}.", 'Give JSON as in {"topic": [0, 1]}.')
    return chosen


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets are between them. A partition that is not in `start` has nothing to read yet."""
    return sum(max(0, offset - start.get(at, offset)) for at, offset in end.items())


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int) -> Offsets:
    """The end offsets if a batch takes `rows_max` offsets, each partition in proportion to what is new in it.

    Each partition with new offsets gives at least one, so that a large partition does not starve a small one.
    """
    total = count_offsets(start, end)
    if total <= rows_max:
        return dict(end)
    sizes = {at: max(0, offset - start.get(at, offset)) for at, offset in end.items()}
    return {
        at: end[at] - new + min(new, max(1, math.floor(rows_max * new / total))) if new else end[at]
        for at, new in sizes.items()
    }


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """A partition that is not in `start` is left out. The next batch reads it from `end`."""
    return [
        OffsetRange(*at, start[at], offset)
        for at, offset in sorted(end.items())
        if at in start and offset > start[at]
    ]


def split(
    ranges: Iterable[OffsetRange], partitions_min: int, size_max: int | None = None
) -> list[OffsetRange]:
    """Splits ranges of more than `size_max` offsets, then all in proportion until there are `partitions_min`.

    There are fewer only if there are fewer offsets.
    """
    ranges = list(ranges)
    if size_max is not None:
        ranges = [part for one in ranges for part in _parts(one, math.ceil(one.size / size_max))]
    total = sum(one.size for one in ranges)
    if len(ranges) >= partitions_min or total == 0:
        return ranges
    counts = (min(one.size, max(1, math.ceil(one.size * partitions_min / total))) for one in ranges)
    return [part for one, count in zip(ranges, counts, strict=True) for part in _parts(one, count)]


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    cuts = [one.start + one.size * cut // count for cut in range(count + 1)]
    return [one._replace(start=first, end=last) for first, last in pairwise(cuts)]
