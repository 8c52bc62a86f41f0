"""The new offsets of a reset, computed from the offsets of each partition. Pure.

The rules are those of Kafka's own tool (KIP-122): an offset outside of the log becomes the nearest one inside, with a
note about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class ResetError(ValueError):
    """A reset that is not possible for one of its partitions."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset; if there is none, the log end offset."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Forward, or back if it is negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after this time; if there is none, the log end offset."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class ToListedOffsets:
    """An offset for each partition, from a file."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToListedOffsets


class PartitionOffsets(NamedTuple):
    """The offsets of a partition. `at_time` is None if no record is so late, or the target is not a time."""

    earliest: int
    latest: int
    committed: int | None
    at_time: int | None = None


class PlannedReset(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    new_offset: int
    # Why the new offset differs from the requested one; None if it does not.
    note: str | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def plan_reset(target: Target, known: Mapping[TopicPartition, PartitionOffsets]) -> list[PlannedReset]:
    """Sorted by topic and partition. Raises ResetError if a partition has no offset to shift."""
    return [_plan_one(target, partition, known[partition]) for partition in sorted(known)]


def _plan_one(target: Target, partition: TopicPartition, offsets: PartitionOffsets) -> PlannedReset:
    requested, note = _requested_offset(target, partition, offsets)
    new_offset = requested
    if requested > offsets.latest:
        new_offset = offsets.latest
        note = f"offset {requested} is after the log end offset: {new_offset} is used"
    elif requested < offsets.earliest:
        new_offset = offsets.earliest
        note = f"offset {requested} is before the earliest offset: {new_offset} is used"
    return PlannedReset(partition.topic, partition.partition, offsets.committed, new_offset, note)


def _requested_offset(
    target: Target, partition: TopicPartition, offsets: PartitionOffsets
) -> tuple[int, str | None]:
    """The offset before it is limited to the log, and a note if it is not what was requested."""
    match target:
        case ToEarliest():
            return offsets.earliest, None
        case ToLatest():
            return offsets.latest, None
        case ToOffset(offset):
            return offset, None
        case ToListedOffsets(given):
            return given[partition], None
        case ToCurrent():
            if offsets.committed is None:
                return offsets.latest, "no offset is committed: the log end offset is used"
            return offsets.committed, None
        case ShiftBy(count):
            if offsets.committed is None:
                raise ResetError(
                    f"{partition} cannot be shifted: the group has no committed offset there. "
                    "Reset it to an offset or a time first, or leave it out with --topic NAME:PARTITIONS"
                )
            return offsets.committed + count, None
        case ToTime():
            if offsets.at_time is None:
                return offsets.latest, "no record is so late: the log end offset is used"
            return offsets.at_time, None
