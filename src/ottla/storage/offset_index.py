"""`.index`: maps offsets to positions, with an entry for about every index.interval.bytes of a segment.

An entry (relative offset, position) has the LAST offset of the batch that begins at the position.
"""

from bisect import bisect_right
from struct import Struct

from ottla.storage.mapped_index import CorruptIndexError, MappedIndex

_ENTRY = Struct(">II")
_unpack = _ENTRY.unpack_from


class OffsetIndex(MappedIndex):
    entry = _ENTRY

    _last_offset = -1
    _last_position = 0

    @property
    def last_offset(self) -> int:
        """The segment's base offset if there is no entry."""
        return self._last_offset if self.entries else self.base_offset

    @property
    def last_position(self) -> int:
        return self._last_position if self.entries else 0

    def append(self, offset: int, position: int) -> None:
        """The caller must have called `ensure_room` and checked that the index is not full."""
        assert self._map is not None
        _ENTRY.pack_into(self._map.buffer, self._entries * _ENTRY.size, offset - self.base_offset, position)
        self._entries += 1
        self._last_offset = offset
        self._last_position = position

    def position_for(self, offset: int) -> int:
        """The closest position in the index from which a scan finds the batch with `offset`."""
        entries = self.entries
        if not entries:
            return 0
        if offset >= self._last_offset:
            return self._last_position
        buffer, size = self._buffer(), _ENTRY.size
        relative = offset - self.base_offset
        slot = bisect_right(range(entries), relative, key=lambda slot: _unpack(buffer, slot * size)[0])
        position: int = _unpack(buffer, (slot - 1) * size)[1] if slot else 0
        return position

    def entry_up_to(self, position: int) -> tuple[int, int] | None:
        """The (offset, position) of the last entry at or before `position`."""
        entries = self.entries
        if not entries:
            return None
        if position >= self._last_position:
            return self._last_offset, self._last_position
        buffer, size = self._buffer(), _ENTRY.size
        slot = bisect_right(range(entries), position, key=lambda slot: _unpack(buffer, slot * size)[1])
        if not slot:
            return None
        relative, found = _unpack(buffer, (slot - 1) * size)
        return self.base_offset + relative, found

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of batches with `offset` or later offsets."""
        entries = self.entries
        if not entries or offset > self._last_offset:
            return
        buffer, size = self._buffer(), _ENTRY.size
        relative = offset - self.base_offset
        self._truncate_to_entries(
            bisect_right(range(entries), relative - 1, key=lambda slot: _unpack(buffer, slot * size)[0])
        )

    def _check_last(self, last: bytes) -> None:
        # The first entry follows index.interval.bytes of log, so no entry has position 0.
        if last and _ENTRY.unpack(last)[1] == 0:
            raise CorruptIndexError(f"the last entry of {self.path} points to position 0")

    def _reset_to(self, entries: int, last: bytes = b"") -> None:
        self._entries = entries
        if last:
            relative, self._last_position = _ENTRY.unpack(last)
            self._last_offset = self.base_offset + relative
        else:
            self._last_offset, self._last_position = -1, 0
