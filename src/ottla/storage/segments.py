"""The segments of a log in order, and the positions of offsets in them."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.model.region import FileRegion
from ottla.storage.batch_scan import iter_headers
from ottla.storage.segment import Segment

# Enough for the consumers at the end of a partition, and for its high watermark and last stable offset.
_CACHED_POSITIONS_MAX = 32
_BASE_OFFSET_BYTES = 8


class _EmptyFile:
    def fileno(self) -> int:
        return -1

    def read_at(self, position: int, length: int) -> bytes:
        return b""

    def is_cached(self, position: int, length: int) -> bool:
        return True


# The end of an active segment was written a moment ago, so it is in the page cache.
_HOT_BYTES = 16 << 20
EMPTY_REGION = FileRegion(_EmptyFile(), 0, 0)


class LogSlice(NamedTuple):
    """Whole batches of one segment, with offsets below `end_offset`."""

    region: FileRegion
    end_offset: int
    is_hot: bool = False  # written so recently that it is in the page cache


class ColdLookup(Exception):
    """A lookup would load the indexes of a segment, and rebuild them from its records if they are damaged.

    Call `warm` in a thread, and read again with `may_block`.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"the indexes of {segment.path} are not loaded")
        self._segment = segment

    def warm(self) -> None:
        self._segment.prepare()


class Segments:
    """Never empty once the log is open; the last segment is the active one.

    Caches the positions of offsets that were appended or read recently, because the next reads ask for them. So a
    consumer at the end of the log, or one that catches up, needs neither a search nor a scan.
    """

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        # By offset: the position of the first batch whose last offset is not below it.
        self._cached: dict[int, tuple[Segment, int]] = {}

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
        self._cached.clear()

    def replace(self, replaced: Iterable[Segment], segment: Segment) -> None:
        """Replaces adjacent segments with `segment`, which has the base offset of the first one."""
        self.remove(replaced)
        index = bisect_right(self._bases, segment.base_offset)
        self._segments.insert(index, segment)
        self._bases.insert(index, segment.base_offset)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment with `offset` and all later segments."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def next_base_offset(self, segment: Segment) -> int | None:
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else None

    def cache_position(self, offset: int, segment: Segment, position: int) -> None:
        cached = self._cached
        cached[offset] = (segment, position)
        if len(cached) > _CACHED_POSITIONS_MAX:
            del cached[next(iter(cached))]

    def clear_cache(self) -> None:
        self._cached.clear()

    def locate(self, offset: int, *, may_block: bool = True) -> tuple[Segment, int] | None:
        """The position of the first batch whose last offset is not below `offset`; None if there is no such batch.

        Raises ColdLookup instead of loading an index, unless `may_block` is set.
        """
        cached = self._cached.get(offset)
        if cached is not None:
            return cached
        for segment in self.from_offset(offset):
            if not may_block and not segment.is_prepared:
                raise ColdLookup(segment)
            # Compaction may have removed all batches from `offset` to the end of a segment.
            if segment.size and (found := segment.find(offset)) is not None:
                self.cache_position(offset, segment, found.position)
                return segment, found.position
        return None

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        log_end_offset: int,
        at_least_one: bool,
        may_block: bool = True,
    ) -> LogSlice:
        """Whole batches from the one with `offset` on, all below `end_offset`. Raises ColdLookup as `locate` does."""
        found = self._cached.get(offset) or self.locate(offset, may_block=may_block)
        if found is None:
            return LogSlice(EMPTY_REGION, end_offset)
        segment, start = found
        limit = segment.size if end_offset >= log_end_offset else self._limit(segment, end_offset, may_block)
        length = limit - start
        if length <= 0:
            return LogSlice(EMPTY_REGION, offset)
        if length > max_bytes:
            length, end_offset = self._cut(segment, start, max_bytes, at_least_one)
            if not length:
                return LogSlice(EMPTY_REGION, offset)
        elif segment is not self._segments[-1]:
            end_offset = min(end_offset, self.next_base_offset(segment) or end_offset)
        is_hot = segment is self._segments[-1] and segment.size - start <= _HOT_BYTES and segment.is_modified
        return LogSlice(FileRegion(segment.file, start, length), end_offset, is_hot)

    def _limit(self, segment: Segment, end_offset: int, may_block: bool) -> int:
        """The position in `segment` of the first batch that a read below `end_offset` must not return."""
        found = self.locate(end_offset, may_block=may_block)
        if found is None or found[0].base_offset > segment.base_offset:
            return segment.size
        return found[1] if found[0] is segment else 0

    def _cut(self, segment: Segment, start: int, max_bytes: int, at_least_one: bool) -> tuple[int, int]:
        """Returns the length and end offset of whole batches from `start` on that fit into `max_bytes`.

        The index gives the length, so it may be up to index.interval.bytes less than possible.
        """
        entry = segment.offset_index.entry_up_to(start + max_bytes)
        if entry is None or entry[1] <= start:
            return self._cut_by_scan(segment, start, max_bytes, at_least_one)
        last_offset, position = entry
        if not segment.file.is_cached(position, _BASE_OFFSET_BYTES):
            return position - start, last_offset
        # The next read of this consumer begins there.
        base_offset = int.from_bytes(segment.file.read_at(position, _BASE_OFFSET_BYTES))
        self.cache_position(base_offset, segment, position)
        return position - start, base_offset

    def _cut_by_scan(
        self, segment: Segment, start: int, max_bytes: int, at_least_one: bool
    ) -> tuple[int, int]:
        end_offset = segment.base_offset
        for position, header in iter_headers(segment.file, start, segment.size):
            if position + header.size - start > max_bytes:
                if position == start and at_least_one:
                    return header.size, header.next_offset
                self.cache_position(header.base_offset, segment, position)
                return position - start, header.base_offset
            end_offset = header.next_offset
        return segment.size - start, end_offset
