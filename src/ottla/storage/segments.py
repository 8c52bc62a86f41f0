"""The segments of a log in order, and where in them offsets lie."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.model.region import FileRegion
from ottla.storage.batch_scan import iter_headers
from ottla.storage.segment import Segment

# Enough for the readers of one partition that follow its end, and for its high watermark and last stable offset.
_KNOWN_POSITIONS_MAX = 32
_BASE_OFFSET_BYTES = 8


class _NoFile:
    def fileno(self) -> int:
        return -1

    def read_at(self, position: int, length: int) -> bytes:
        return b""

    def is_cached(self, position: int, length: int) -> bool:
        return True


# What an active segment ends with was written moments ago, or at worst is about to be: the page cache has it.
_HOT_BYTES = 16 << 20
EMPTY_REGION = FileRegion(_NoFile(), 0, 0)


class LogSlice(NamedTuple):
    """Whole batches of one segment. `end_offset`: no record in them has this offset or a greater one."""

    region: FileRegion
    end_offset: int
    is_hot: bool = False  # written so lately that it lies in memory


class Segments:
    """Never empty once its log is open: the last segment is the active one.

    Positions of offsets that were appended or read a moment ago are remembered, since those are what the next
    reads ask for: a consumer at the end of the log, or one that catches up, costs neither search nor scan.
    """

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        # offset -> where the first batch begins that is not wholly below it
        self._known: dict[int, tuple[Segment, int]] = {}

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segments: Iterable[Segment]) -> None:
        removed = set(segments)
        self._segments = [segment for segment in self._segments if segment not in removed]
        self._bases = [segment.base_offset for segment in self._segments]
        self._known.clear()

    def replace(self, replaced: Iterable[Segment], segment: Segment) -> None:
        """Puts `segment` in the place of neighbours, the first of which has its base offset."""
        self.remove(replaced)
        index = bisect_right(self._bases, segment.base_offset)
        self._segments.insert(index, segment)
        self._bases.insert(index, segment.base_offset)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all later ones."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def next_base(self, segment: Segment) -> int | None:
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        known = self._known
        known[offset] = (segment, position)
        if len(known) > _KNOWN_POSITIONS_MAX:
            del known[next(iter(known))]

    def forget_positions(self) -> None:
        self._known.clear()

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """Where the first batch begins that is not wholly below `offset`; None where there is no such batch."""
        known = self._known.get(offset)
        if known is not None:
            return known
        for segment in self.from_offset(offset):
            # Compaction may have removed all from `offset` to the end of a segment.
            if segment.size and (found := segment.find(offset)) is not None:
                self.remember(offset, segment, found.position)
                return segment, found.position
        return None

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, log_end_offset: int, at_least_one: bool
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, none of them with `end_offset` or a later one."""
        found = self._known.get(offset) or self.locate(offset)
        if found is None:
            return LogSlice(EMPTY_REGION, end_offset)
        segment, start = found
        limit = segment.size if end_offset >= log_end_offset else self._limit(segment, end_offset)
        length = limit - start
        if length <= 0:
            return LogSlice(EMPTY_REGION, offset)
        if length > max_bytes:
            length, end_offset = self._cut(segment, start, max_bytes, at_least_one)
            if not length:
                return LogSlice(EMPTY_REGION, offset)
        elif segment is not self._segments[-1]:
            end_offset = min(end_offset, self.next_base(segment) or end_offset)
        is_hot = segment is self._segments[-1] and segment.size - start <= _HOT_BYTES and segment.is_modified
        return LogSlice(FileRegion(segment.file, start, length), end_offset, is_hot)

    def _limit(self, segment: Segment, end_offset: int) -> int:
        """The position in `segment` at which a reader must stop that may not see `end_offset`."""
        found = self.locate(end_offset)
        if found is None or found[0].base_offset > segment.base_offset:
            return segment.size
        return found[1] if found[0] is segment else 0

    def _cut(self, segment: Segment, start: int, max_bytes: int, at_least_one: bool) -> tuple[int, int]:
        """(length, end offset) of as many whole batches from `start` as fit into `max_bytes`, or nearly so."""
        entry = segment.offset_index.entry_up_to(start + max_bytes)
        if entry is None or entry[1] <= start:
            return self._cut_by_scan(segment, start, max_bytes, at_least_one)
        last_offset, position = entry
        if not segment.file.is_cached(position, _BASE_OFFSET_BYTES):
            return position - start, last_offset
        # The reader comes back for what follows.
        base_offset = int.from_bytes(segment.file.read_at(position, _BASE_OFFSET_BYTES))
        self.remember(base_offset, segment, position)
        return position - start, base_offset

    def _cut_by_scan(
        self, segment: Segment, start: int, max_bytes: int, at_least_one: bool
    ) -> tuple[int, int]:
        end_offset = segment.base_offset
        for position, header in iter_headers(segment.file, start, segment.size):
            if position + header.size - start > max_bytes:
                if position == start and at_least_one:
                    return header.size, header.next_offset
                self.remember(header.base_offset, segment, position)
                return position - start, header.base_offset
            end_offset = header.next_offset
        return segment.size - start, end_offset
