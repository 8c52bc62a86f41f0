"""Where a reset would move a group's committed offsets: decided from what is known of each partition, no cluster asked.

The rules are those of Kafka's own tool (KIP-122): an offset before the first or after the last record becomes the
nearest that is there, with a word about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class ResetError(ValueError):
    """A reset that has no meaning for one of its partitions."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The committed offset; where none is committed, the log end offset."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Forward, or back where it is negative."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after this time; where there is none, the log end offset."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """An offset of its own for each partition, as a file lists them."""

    offsets: Mapping[TopicPartition, int]


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToGiven


class PartitionOffsets(NamedTuple):
    """What is known of a partition. `at_time` is None where no record is so late, or no time was asked for."""

    earliest: int
    latest: int
    committed: int | None
    at_time: int | None = None


class PlannedReset(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    new_offset: int
    # Why it is not what was asked for; None where it is.
    note: str | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def plan_reset(target: Target, known: Mapping[TopicPartition, PartitionOffsets]) -> list[PlannedReset]:
    """Sorted by topic and partition. Raises ResetError where a partition has no offset to start from."""
    return [_plan_one(target, partition, known[partition]) for partition in sorted(known)]


def _plan_one(target: Target, partition: TopicPartition, offsets: PartitionOffsets) -> PlannedReset:
    wanted, note = _wanted(target, partition, offsets)
    new_offset = wanted
    if wanted > offsets.latest:
        new_offset = offsets.latest
        note = f"offset {wanted} is after the log end offset, {new_offset} is taken"
    elif wanted < offsets.earliest:
        new_offset = offsets.earliest
        note = f"offset {wanted} is before the earliest offset, {new_offset} is taken"
    return PlannedReset(partition.topic, partition.partition, offsets.committed, new_offset, note)


def _wanted(target: Target, partition: TopicPartition, offsets: PartitionOffsets) -> tuple[int, str | None]:
    """The offset before it is brought into range, and a note where it is not literally what was asked for."""
    match target:
        case ToEarliest():
            return offsets.earliest, None
        case ToLatest():
            return offsets.latest, None
        case ToOffset(offset):
            return offset, None
        case ToGiven(given):
            return given[partition], None
        case ToCurrent():
            if offsets.committed is None:
                return offsets.latest, "no offset is committed, the log end offset is taken"
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
                return offsets.latest, "no record is so late, the log end offset is taken"
            return offsets.at_time, None
