"""What the offset index and the time index share: entries of a fixed size in a memory-mapped file.

Nothing is opened before it is needed. The index of the active segment is extended (sparsely) to its greatest
size while entries are added, and cut to what it holds when the segment is sealed, as Kafka does it.
"""

from struct import Struct

from ottla.env.disk import Disk, MappedFile

INT32_MAX = 2**31 - 1


class CorruptIndexError(Exception):
    """An index file that cannot be what was written; it is rebuilt from the log."""


class MappedIndex:
    entry: Struct

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry.size
        self._disk = disk
        self._entries = -1  # not known before the file has been looked at
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
        """An empty file: Kafka takes a missing one for damage."""
        self._disk.open(self.path, create=True).truncate(0)
        self._reset_to(0)

    def clear(self) -> None:
        """Forgets all entries and whatever else an unclean stop left in the file."""
        self.close()
        self.create()

    def ensure_room(self, count: int) -> None:
        """Raises OSError where the disk cannot take `count` more entries, before anything is written."""
        if not self._appendable:
            self._map_for_append()
        assert self._map is not None
        self._map.reserve(min(self._entries + count, self.max_entries) * self.entry.size)

    def _append_unmapped(self, *fields: int) -> None:
        """One entry by a plain write: the last of a small segment is not worth a mapping."""
        position = self.entries * self.entry.size
        self.close()
        self._disk.open(self.path).write_at(position, [self.entry.pack(*fields)])
        self._entries += 1

    def trim(self) -> None:
        """Cuts the file to its entries and lets go of it until the next lookup."""
        if self._map is not None:
            mapped, self._map = self._map, None
            appendable, self._appendable = self._appendable, False
            mapped.close(self._entries * self.entry.size if appendable else None)

    def close(self) -> None:
        """Lets go of the file as it is."""
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
        """Looks at the file's size and last entry; raises CorruptIndexError where they cannot be right."""
        size = self._disk.file_size(self.path)
        entries, rest = divmod(size, self.entry.size)
        if rest:
            raise CorruptIndexError(f"{self.path} has {size} bytes, no multiple of {self.entry.size}")
        last = b""
        if entries:
            last = self._disk.open(self.path).read_at(size - self.entry.size, self.entry.size)
        self._check_last(last)
        self._reset_to(entries, last)

    def _check_last(self, last: bytes) -> None:
        """Raises CorruptIndexError where the last entry cannot be one: an unclean stop leaves zeros."""
        raise NotImplementedError

    def _reset_to(self, entries: int, last: bytes = b"") -> None:
        """From now on the index has this many entries, of which `last` is the last."""
        raise NotImplementedError

    def _keep_first(self, entries: int) -> None:
        size = self.entry.size
        last = bytes(self._buffer()[(entries - 1) * size : entries * size]) if entries else b""
        self._reset_to(entries, last)
        if not self._appendable:
            # The file's size is what says how many entries there are.
            self._appendable = True
            self.trim()
