"""MySQL's global transaction ids: which transactions a set holds.

A GTID is `uuid:number`, or `uuid:tag:number` since MySQL 8.3. Sources of different uuid and tag interleave in the
binlog, and numbers may be left out or come late: so a position is the set of all transactions before it. What lies
between two positions is the difference of their sets, in the order of the binlog.
"""

import re
import uuid
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
TAGGED_FORMAT = 1

Interval = tuple[int, int]


class Source(NamedTuple):
    """Who numbers transactions; most have no tag."""

    uuid: str
    tag: str = ""


class MySqlGtid(NamedTuple):
    source: Source
    number: int

    def __str__(self) -> str:
        return ":".join((*filter(None, self.source), str(self.number)))


@dataclass(frozen=True)
class GtidSet:
    """For each source the intervals of its numbers, both ends included: rising, apart from each other."""

    intervals: Mapping[Source, tuple[Interval, ...]]

    connector = "mysql"

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """As the server writes it, `uuid:1-5:7:tag:1-3,uuid:9`. Raises ValueError for anything else."""
        held: dict[Source, list[Interval]] = {}
        for part in "".join(text.split()).lower().split(","):
            if not part:
                continue
            name, *fields = part.split(":")
            if not UUID.fullmatch(name):
                raise ValueError(f"{part!r} is no set of GTIDs")
            source = Source(name)
            for field in fields:
                if TAG.fullmatch(field):
                    source = Source(name, field)
                else:
                    first, _, last = field.partition("-")
                    held.setdefault(source, []).append((int(first), int(last or first)))
        return cls({source: joined(intervals) for source, intervals in held.items()})

    def __str__(self) -> str:
        texts: dict[str, str] = {}
        for source in sorted(self.intervals):
            numbers = ":".join(
                str(first) if first == last else f"{first}-{last}" for first, last in self.intervals[source]
            )
            tag = f":{source.tag}" if source.tag else ""
            texts[source.uuid] = f"{texts.get(source.uuid, source.uuid)}{tag}:{numbers}"
        return ",".join(texts.values())

    def includes(self, gtid: MySqlGtid) -> bool:
        return covers(self.intervals.get(gtid.source, ()), (gtid.number, gtid.number))

    def reaches(self, other: "GtidSet") -> bool:
        return all(
            covers(self.intervals.get(source, ()), interval)
            for source, intervals in other.intervals.items()
            for interval in intervals
        )

    def after(self, gtid: MySqlGtid) -> "GtidSet":
        intervals = joined([*self.intervals.get(gtid.source, ()), (gtid.number, gtid.number)])
        return GtidSet({**self.intervals, gtid.source: intervals})

    def transactions_to(self, end: "GtidSet") -> int:
        """How many there are in `end` that are not here."""
        return end.age - sum(
            common(self.intervals.get(source, ()), intervals) for source, intervals in end.intervals.items()
        )

    @property
    def age(self) -> int:
        """The number of transactions: rises along the binlog, whatever the source."""
        return sum(last - first + 1 for intervals in self.intervals.values() for first, last in intervals)

    def encoded(self) -> bytes:
        """As the server takes it when it is asked for what comes after. Without tags it is what all versions take."""
        sources = sorted(self.intervals)
        tagged = any(source.tag for source in sources)
        count = len(sources)
        head = TAGGED_FORMAT << 56 | count << 8 | TAGGED_FORMAT if tagged else count
        parts = [head.to_bytes(8, "little")]
        for source in sources:
            parts.append(uuid.UUID(source.uuid).bytes)
            if tagged:
                parts.append(bytes([len(source.tag) << 1]) + source.tag.encode())
            intervals = self.intervals[source]
            parts.append(len(intervals).to_bytes(8, "little"))
            parts += [
                number.to_bytes(8, "little") for first, last in intervals for number in (first, last + 1)
            ]
        return b"".join(parts)


def joined(intervals: list[Interval]) -> tuple[Interval, ...]:
    """In order, those that touch made one."""
    result: list[Interval] = []
    for first, last in sorted(intervals):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def covers(intervals: tuple[Interval, ...], wanted: Interval) -> bool:
    at = bisect_right(intervals, wanted[0], key=lambda interval: interval[0]) - 1
    return at >= 0 and wanted[1] <= intervals[at][1]


def common(ours: tuple[Interval, ...], theirs: tuple[Interval, ...]) -> int:
    """How many numbers are in both."""
    return sum(
        max(0, min(last, other_last) - max(first, other_first) + 1)
        for first, last in ours
        for other_first, other_last in theirs
    )
