"""MySQL's global transaction ids, and sets of them as positions in its binlog.

A GTID is `uuid:number`, or `uuid:tag:number` since MySQL 8.3. Transactions of several sources (uuid and tag) interleave
in the binlog, and their numbers may have gaps or be out of order. So a position is the set of all transactions before
it, and a batch is the difference of two sets, in the order of the binlog.
"""

import re
import uuid
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_TAGGED_FORMAT = 1

_Interval = tuple[int, int]


class GtidSource(NamedTuple):
    """The server, and the tag if there is one, that numbers transactions."""

    uuid: str
    tag: str = ""


class MySqlGtid(NamedTuple):
    source: GtidSource
    number: int

    def __str__(self) -> str:
        return ":".join((*filter(None, self.source), str(self.number)))


@dataclass(frozen=True)
class GtidSet:
    """For each source the intervals of its numbers, both ends included, sorted and disjoint."""

    intervals: Mapping[GtidSource, tuple[_Interval, ...]]

    connector = "mysql"

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """As the server writes it, `uuid:1-5:7:tag:1-3,uuid:9`. Raises ValueError for any other text."""
        held: dict[GtidSource, list[_Interval]] = {}
        for part in "".join(text.split()).lower().split(","):
            if not part:
                continue
            name, *fields = part.split(":")
            if not _UUID.fullmatch(name):
                raise ValueError(f"{part!r} is not a set of GTIDs")
            source = GtidSource(name)
            for field in fields:
                if _TAG.fullmatch(field):
                    source = GtidSource(name, field)
                else:
                    first, _, last = field.partition("-")
                    held.setdefault(source, []).append((int(first), int(last or first)))
        return cls({source: _merge(intervals) for source, intervals in held.items()})

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
        return _covers(self.intervals.get(gtid.source, ()), (gtid.number, gtid.number))

    def reaches(self, other: "GtidSet") -> bool:
        return all(
            _covers(self.intervals.get(source, ()), interval)
            for source, intervals in other.intervals.items()
            for interval in intervals
        )

    def after(self, gtid: MySqlGtid) -> "GtidSet":
        intervals = _merge([*self.intervals.get(gtid.source, ()), (gtid.number, gtid.number)])
        return GtidSet({**self.intervals, gtid.source: intervals})

    def transactions_to(self, end: "GtidSet") -> int:
        return end.progress - sum(
            _count_common(self.intervals.get(source, ()), intervals)
            for source, intervals in end.intervals.items()
        )

    @property
    def progress(self) -> int:
        """The number of transactions."""
        return sum(last - first + 1 for intervals in self.intervals.values() for first, last in intervals)

    def encode(self) -> bytes:
        """The form in COM_BINLOG_DUMP_GTID. A set without tags gets the older form, which all versions accept."""
        sources = sorted(self.intervals)
        tagged = any(source.tag for source in sources)
        count = len(sources)
        head = _TAGGED_FORMAT << 56 | count << 8 | _TAGGED_FORMAT if tagged else count
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


def _merge(intervals: list[_Interval]) -> tuple[_Interval, ...]:
    """Sorted, adjacent and overlapping ones merged."""
    result: list[_Interval] = []
    for first, last in sorted(intervals):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def _covers(intervals: tuple[_Interval, ...], wanted: _Interval) -> bool:
    at = bisect_right(intervals, wanted[0], key=lambda interval: interval[0]) - 1
    return at >= 0 and wanted[1] <= intervals[at][1]


def _count_common(ours: tuple[_Interval, ...], theirs: tuple[_Interval, ...]) -> int:
    """How many numbers both have."""
    return sum(
        max(0, min(last, other_last) - max(first, other_first) + 1)
        for first, last in ours
        for other_first, other_last in theirs
    )
