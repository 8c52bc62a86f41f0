"""The common part of the offset index and the time index: fixed-size entries in a memory-mapped file.

The file is opened on first use. As in Kafka, the index of the active segment is a sparse file of maximal size, which is
truncated to its entries when the segment is sealed.
"""

from struct import Struct

from ottla.env.disk import Disk, MappedFile

INT32_MAX = 2**31 - 1


class CorruptIndexError(Exception):
    """An index file is damaged; it is rebuilt from the log."""


class MappedIndex:
    entry: Struct

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry.size
        self._disk = disk
        self._entries = -1  # unknown until `load`
        self._map: MappedFile | None = None
        self._appendable = False

    @property
    def entries(self) -> int:
        if self._entries < 0:
            self.load()
        return self._entries

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    def create(self) -> None:
        """Creates an empty file, because Kafka takes a missing one for damage."""
        self._disk.open(self.path, create=True).truncate(0)
        self._reset_to(0)

    def clear(self) -> None:
        """Removes all entries and everything that an unclean shutdown left in the file."""
        self.close()
        self.create()

    def ensure_room(self, count: int) -> None:
        """Allocates disk space for `count` more entries. Raises OSError if there is none."""
        if not self._appendable:
            self._map_for_append()
        assert self._map is not None
        self._map.reserve(min(self._entries + count, self.max_entries) * self.entry.size)

    def _append_unmapped(self, *fields: int) -> None:
        """Writes one entry without a mapping, which would not pay for the last entry of a small segment."""
        position = self.entries * self.entry.size
        self.close()
        self._disk.open(self.path).write_at(position, [self.entry.pack(*fields)])
        self._entries += 1

    def trim(self) -> None:
        """Truncates the file to its entries and unmaps it until the next lookup."""
        if self._map is not None:
            mapped, self._map = self._map, None
            appendable, self._appendable = self._appendable, False
            mapped.close(self._entries * self.entry.size if appendable else None)

    def close(self) -> None:
        """Unmaps the file without truncating it."""
        if self._map is not None:
            mapped, self._map = self._map, None
            mapped.close()
            self._appendable = False

    def _buffer(self) -> memoryview:
        if self._map is None:
            self._map = self._disk.map(self.path)
        return self._map.buffer

    def _map_for_append(self) -> None:
        entries = self.entries
        self.close()
        self._map = self._disk.map(self.path, max(self.max_entries, entries) * self.entry.size)
        self._appendable = True

    def load(self) -> None:
        """Reads the size and the last entry. Raises CorruptIndexError if they are invalid."""
        size = self._disk.file_size(self.path)
        entries, rest = divmod(size, self.entry.size)
        if rest:
            raise CorruptIndexError(
                f"{self.path} has {size} bytes, which is not a multiple of {self.entry.size}"
            )
        last = b""
        if entries:
            last = self._disk.open(self.path).read_at(size - self.entry.size, self.entry.size)
        self._check_last(last)
        self._reset_to(entries, last)

    def _check_last(self, last: bytes) -> None:
        """Raises CorruptIndexError if the last entry is invalid: an unclean shutdown leaves zeros."""
        raise NotImplementedError

    def _reset_to(self, entries: int, last: bytes = b"") -> None:
        """Sets the number of entries, and the last one."""
        raise NotImplementedError

    def _truncate_to_entries(self, entries: int) -> None:
        size = self.entry.size
        last = bytes(self._buffer()[(entries - 1) * size : entries * size]) if entries else b""
        self._reset_to(entries, last)
        if not self._appendable:
            # The size of an unmapped file determines the number of entries.
            self._appendable = True
            self.trim()
