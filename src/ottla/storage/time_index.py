"""`.timeindex`: maps timestamps to offsets.

An entry (timestamp, relative offset) means: the batch that ends with this offset has this timestamp, and no record up
to the offset has a greater one. Timestamps and offsets increase from entry to entry.
"""

from bisect import bisect_right
from struct import Struct

from ottla.model.ids import NO_TIMESTAMP
from ottla.storage.mapped_index import CorruptIndexError, MappedIndex

_ENTRY = Struct(">qI")
_unpack = _ENTRY.unpack_from


class TimeIndex(MappedIndex):
    entry = _ENTRY

    _last_timestamp = NO_TIMESTAMP
    _last_offset = -1

    @property
    def is_full(self) -> bool:
        """One entry stays free for `append_last`."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """Returns (timestamp, offset); (-1, base offset) if there is no entry."""
        if not self.entries:
            return NO_TIMESTAMP, self.base_offset
        return self._last_timestamp, self._last_offset

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """The caller must have called `ensure_room`."""
        if timestamp <= self.last_entry[0]:
            return
        assert self._map is not None
        _ENTRY.pack_into(self._map.buffer, self._entries * _ENTRY.size, timestamp, offset - self.base_offset)
        self._entries += 1
        self._last_timestamp, self._last_offset = timestamp, offset

    def append_last(self, timestamp: int, offset: int) -> None:
        """Appends the greatest timestamp of a segment when the segment is sealed."""
        if self._appendable:
            self.ensure_room(1)
            self.append_if_later(timestamp, offset)
        elif timestamp > self.last_entry[0]:
            self._append_unmapped(timestamp, offset - self.base_offset)
            self._last_timestamp, self._last_offset = timestamp, offset

    def offset_for(self, timestamp: int) -> int:
        """An offset from which a scan finds the first record with `timestamp` or a greater one."""
        entries = self.entries
        if not entries:
            return self.base_offset
        buffer, size = self._buffer(), _ENTRY.size
        slot = bisect_right(range(entries), timestamp, key=lambda slot: _unpack(buffer, slot * size)[0])
        if not slot:
            return self.base_offset
        relative: int = _unpack(buffer, (slot - 1) * size)[1]
        return self.base_offset + relative

    def entry_before(self, offset: int) -> tuple[int, int]:
        """The last entry (timestamp, offset) with an offset below `offset`; (-1, base offset) if there is none."""
        if not self.entries or offset > self._last_offset:
            return self.last_entry
        count = self._entries_before(offset)
        if not count:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = _unpack(self._buffer(), (count - 1) * _ENTRY.size)
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        if self.entries and offset <= self._last_offset:
            self._truncate_to_entries(self._entries_before(offset))

    def _entries_before(self, offset: int) -> int:
        buffer, size = self._buffer(), _ENTRY.size
        relative = offset - self.base_offset
        return bisect_right(
            range(self.entries), relative - 1, key=lambda slot: _unpack(buffer, slot * size)[1]
        )

    def _check_last(self, last: bytes) -> None:
        if last and not any(last):
            raise CorruptIndexError(f"the last entry of {self.path} is zero")

    def _reset_to(self, entries: int, last: bytes = b"") -> None:
        self._entries = entries
        if last:
            self._last_timestamp, relative = _ENTRY.unpack(last)
            self._last_offset = self.base_offset + relative
        else:
            self._last_timestamp, self._last_offset = NO_TIMESTAMP, -1
