"""`.txnindex`: the aborted transactions whose marker is in a segment (KIP-98). Most segments have none."""

from collections.abc import Callable, Iterable
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
    last_stable_offset: int  # after this transaction was aborted


class TxnIndex:
    """Entries are in the order of their markers.

    Every segment has this file, even if it is empty. Kafka creates it with the first entry, so it cannot distinguish a
    lost index from an empty one; after a loss it returns aborted records to read_committed consumers. Here a missing
    file is rebuilt when the log is opened. For a directory of Kafka's, the first start reads all batch headers once.
    """

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.path = path
        self.needs_sync = False  # not for a file that was always empty
        self._disk = disk
        self._base_offset = base_offset
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None
        self._unsaved = 0  # number of entries at the end that are not in the file

    def clear(self) -> None:
        """Creates the file, or truncates it."""
        file = self._disk.open(self.path, create=True)
        if file.size():
            file.truncate(0)
            self.needs_sync = True
        self._entries = []
        self._unsaved = 0

    def check(self, end_offset: int) -> None:
        """Raises FileNotFoundError, or CorruptIndexError for an entry that a segment up to `end_offset` cannot have."""
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
                raise CorruptIndexError(f"{self.path} has an invalid entry: {entry}")
            previous = entry.last_offset

    def rebuild(self, entries: Iterable[AbortedTxn]) -> None:
        """Replaces the file and syncs it, because flushed records depend on it."""
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
        """The marker is in the log already, so if the file cannot be opened now, `save` writes the entry later."""
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

    def truncation(self, offset: int) -> Callable[[], None]:
        """The work of removing the transactions that end at `offset` or later. Its files are open already."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) == len(entries):
            return lambda: None
        self.save()
        file = self._disk.open(self.path)

        def truncate() -> None:
            file.truncate(len(kept) * _ENTRY.size)
            self.needs_sync = True
            self._entries = kept

        return truncate

    def collect(self, from_offset: int, to_offset: int, found: list[AbortedTxn]) -> bool:
        """Adds the transactions that overlap [from, to) to `found`. Returns True if later segments have no more."""
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
        raise CorruptIndexError(f"{path} has {len(data)} bytes, which is not a multiple of {_ENTRY.size}")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptIndexError(
                f"{path} has an entry of version {version}, but only version {_VERSION} is supported"
            )
        entries.append(AbortedTxn._make(fields))
    return entries
