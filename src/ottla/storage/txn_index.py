"""`.txnindex`: the aborted transactions whose end marker lies in a segment (KIP-98). Most segments have none."""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.storage.disk_errors import is_disk_failure
from ottla.storage.mapped_index import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # as it was once this transaction had been decided


class TxnIndex:
    """Entries are in the order of their markers.

    Every segment has the file, empty if nothing was aborted. Kafka makes it with the first entry, so it cannot tell a
    lost index from one that never was, and shows aborted records to everybody. Here a missing file is rebuilt when the
    log is opened, which costs a directory of Kafka's one walk over its batch headers, at its first start.
    """

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.needs_sync = False  # an empty file that never held anything needs none
        self._disk = disk
        self._base_offset = base_offset
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None
        self._unsaved = 0  # so many of the last entries are in memory only

    def clear(self) -> None:
        """An empty file, whatever was there."""
        file = self._disk.open(self.path, create=True)
        if file.size():
            file.truncate(0)
            self.needs_sync = True
        self._entries = []
        self._unsaved = 0

    def check(self, end_offset: int) -> None:
        """Raises FileNotFoundError, or CorruptIndexError if no segment that ends at `end_offset` can have it."""
        if not self._disk.file_size(self.path):
            self._entries = []
            return
        self.needs_sync = True
        previous = self._base_offset - 1
        for entry in read_txn_index(self._disk, self.path):
            if not previous < entry.last_offset < end_offset:
                raise CorruptIndexError(
                    f"{self.path} has a transaction that ends at offset {entry.last_offset}, which is not between "
                    f"{previous} and {end_offset}"
                )
            if not (
                0 <= entry.first_offset < entry.last_offset
                and 0 <= entry.last_stable_offset <= entry.last_offset + 1
                and entry.producer_id >= 0
            ):
                raise CorruptIndexError(f"{self.path} has an entry that no transaction can have: {entry}")
            previous = entry.last_offset

    def rebuild(self, entries: Iterable[AbortedTxn]) -> None:
        """Replaces the file. Records that are flushed depend on it, so it is on disk after this."""
        self.close()
        self._entries = list(entries)
        self._unsaved = 0
        if self._entries:
            data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries)
            self._disk.write_atomically(self.path, data)
        else:
            self.clear()

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = read_txn_index(self._disk, self.path)
        return self._entries

    def append(self, aborted: AbortedTxn) -> None:
        """Its marker is in the log already: where no file can be opened now, `save` writes the entry later."""
        self.entries().append(aborted)
        self._unsaved += 1
        try:
            self.save()
        except OSError as error:
            if is_disk_failure(error):
                raise

    def save(self) -> None:
        """Writes the entries that are not in the file yet."""
        if not self._unsaved:
            return
        entries = self.entries()
        first = len(entries) - self._unsaved
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        self._file.write_at(first * _ENTRY.size, [_ENTRY.pack(_VERSION, *entry) for entry in entries[first:]])
        self.needs_sync = True
        self._unsaved = 0

    def truncate_to(self, offset: int) -> None:
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self.save()
            self._disk.open(self.path).truncate(len(kept) * _ENTRY.size)
            self.needs_sync = True
            self._entries = kept

    def collect(self, from_offset: int, to_offset: int, found: list[AbortedTxn]) -> bool:
        """Adds what a reader of [from, to) must know; True where no later segment can add to it."""
        for entry in self.entries():
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return True
        return False

    def close(self) -> None:
        self._file = None


def read_txn_index(disk: Disk, path: str) -> list[AbortedTxn]:
    """Raises CorruptIndexError."""
    data = disk.read_bytes(path)
    if len(data) % _ENTRY.size:
        raise CorruptIndexError(f"{path} has {len(data)} bytes, no multiple of {_ENTRY.size}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptIndexError(f"{path} has an entry of version {version}; version {_VERSION} is known")
        entries.append(AbortedTxn._make(fields))
    return entries
