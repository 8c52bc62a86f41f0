"""`.txnindex`: the aborted transactions whose end marker lies in a segment (KIP-98). Most segments have none."""

from struct import Struct
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.storage.mapped_index import CorruptIndexError

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # as it was once this transaction had been decided


class TxnIndex:
    """The file is made with the first entry. Entries are in the order of their markers."""

    def __init__(self, disk: Disk, path: str, base_offset: int, *, exists: bool) -> None:
        self.path = path
        self.exists = exists
        self._disk = disk
        self._base_offset = base_offset
        self._file: File | None = None
        self._entries: list[AbortedTxn] | None = None if exists else []

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = read_txn_index(self._disk, self.path)
            if any(entry.last_offset < self._base_offset for entry in self._entries):
                raise CorruptIndexError(f"{self.path} has a transaction that ended before its segment")
        return self._entries

    def append(self, aborted: AbortedTxn) -> None:
        entries = self.entries()
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
            self.exists = True
        self._file.write_at(len(entries) * _ENTRY.size, [_ENTRY.pack(_VERSION, *aborted)])
        entries.append(aborted)

    def truncate_to(self, offset: int) -> None:
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._disk.open(self.path).truncate(len(kept) * _ENTRY.size)
            self._entries = kept

    def clear(self) -> None:
        if self.exists:
            self._disk.open(self.path).truncate(0)
        self._entries = []

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
    data = disk.read_bytes(path)
    whole = len(data) - len(data) % _ENTRY.size
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[:whole]):
        if version != _VERSION:
            raise CorruptIndexError(f"{path} has an entry of version {version}; version {_VERSION} is known")
        entries.append(AbortedTxn._make(fields))
    return entries
