"""Records what clients saw in a run, and checks it against the guarantees of a log.

For idempotent producers: every record is in the log at most once, the records of each producer are in order, every
acknowledged record is at its acknowledged offset, and a record that a consumer has seen does not change.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Violation(AssertionError):
    """The broker broke a guarantee; the message says which one, and with which records."""


class Value(NamedTuple):
    """The key of a record: its producer, and its number among the producer's records for the partition."""

    producer: str
    number: int

    def encode(self) -> bytes:
        return f"{self.producer}/{self.number}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "Value":
        producer, _, number = data.decode().rpartition("/")
        return cls(producer, int(number))


@dataclass
class PartitionHistory:
    """The history of one partition. `acknowledged` maps a value to its acknowledged offset."""

    acknowledged: dict[Value, int] = field(default_factory=dict)
    attempted: set[Value] = field(default_factory=set)
    seen: dict[int, Value] = field(default_factory=dict)
    high_watermark: int = 0

    def acknowledge(self, value: Value, offset: int) -> None:
        known = self.acknowledged.setdefault(value, offset)
        if known != offset:
            raise Violation(f"{value} was acknowledged at offset {known} and again at {offset}")
        other = self.seen.get(offset)
        if other not in (None, value):
            raise Violation(f"{value} is acknowledged at offset {offset}, where a consumer saw {other}")

    def see(self, offset: int, value: Value) -> None:
        """A consumer got this record."""
        if value not in self.attempted:
            raise Violation(f"offset {offset} holds {value}, which no producer sent")
        known = self.seen.setdefault(offset, value)
        if known != value:
            raise Violation(f"offset {offset} held {known} and now holds {value}")

    def see_high_watermark(self, high_watermark: int) -> None:
        if high_watermark < self.high_watermark:
            raise Violation(f"the high watermark went back from {self.high_watermark} to {high_watermark}")
        self.high_watermark = high_watermark

    def check_log(self, log: list[tuple[int, Value]]) -> None:
        """`log` is the whole partition at the end of the run, up to the high watermark."""
        self._check_offsets(log)
        self._check_order(log)
        found = dict(log)
        for value, offset in self.acknowledged.items():
            if found.get(offset) != value:
                raise Violation(
                    f"{value} was acknowledged at offset {offset}, which holds {found.get(offset)}"
                )
        for offset, value in self.seen.items():
            if found.get(offset) != value:
                raise Violation(f"a consumer saw {value} at offset {offset}, which holds {found.get(offset)}")

    def _check_offsets(self, log: list[tuple[int, Value]]) -> None:
        offsets = [offset for offset, _ in log]
        if offsets != list(range(len(offsets))):
            first = next(index for index, offset in enumerate(offsets) if offset != index)
            raise Violation(f"offsets are not dense: after {first - 1} comes {offsets[first]}")

    def _check_order(self, log: list[tuple[int, Value]]) -> None:
        """The numbers of each producer must be 0, 1, 2...: no duplicates, no gaps, in order."""
        next_numbers: dict[str, int] = {}
        for offset, value in log:
            expected = next_numbers.get(value.producer, 0)
            if value.number != expected:
                raise Violation(
                    f"offset {offset} holds number {value.number} of {value.producer}, expected {expected}"
                )
            next_numbers[value.producer] = expected + 1
            if value not in self.attempted:
                raise Violation(f"offset {offset} holds {value}, which no producer sent")


class History:
    """The histories of the partitions of one topic."""

    def __init__(self, kind: type[PartitionHistory] = PartitionHistory) -> None:
        self.partitions: dict[int, PartitionHistory] = {}
        self._kind = kind

    def __getitem__(self, partition: int) -> PartitionHistory:
        return self.partitions.setdefault(partition, self._kind())
