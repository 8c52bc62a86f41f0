"""`.snapshot` files: the state of a log's producers at an offset, so that a start need not read the log again.

Kafka's format: version, CRC32C of the rest, number of entries, entries.
"""

import logging
from collections.abc import Iterable
from struct import Struct

from ottla.core.partition.producers import ProducerEntry
from ottla.env.disk import Disk
from ottla.records.checksum import crc32c
from ottla.storage.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_file

logger = logging.getLogger("ottla.storage")

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
# The fields of ProducerEntry: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator
# epoch, first offset of the open transaction.
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1


class CorruptSnapshotError(Exception):
    """A snapshot is damaged; an older one, or the log itself, is used instead."""


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    body = b"".join((_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    head_size = _HEAD.size + _COUNT.size
    if len(data) < head_size:
        raise CorruptSnapshotError(f"it has {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"it has version {version}, but only version {_VERSION} is supported")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptSnapshotError("its CRC32C does not match")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if len(data) != head_size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"it has {len(data)} bytes, which does not fit {count} producers")
    return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[head_size:])]


def read_snapshot(disk: Disk, path: str) -> list[ProducerEntry]:
    return decode_snapshot(disk.read_bytes(path))


class ProducerSnapshots:
    """The snapshot files of one log. Each has an offset, and the state of the producers before it."""

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self.offsets = sorted(offsets)
        self._disk = disk
        self._directory = directory

    def path(self, offset: int) -> str:
        return segment_file(self._directory, offset, SNAPSHOT_SUFFIX)

    def write(self, offset: int, entries: list[ProducerEntry]) -> None:
        """Does not sync: the next flush does. Until then recovery uses an older snapshot."""
        data = encode_snapshot(entries)
        file = self._disk.open(self.path(offset), create=True)
        file.write_at(0, [data])
        file.truncate(len(data))
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def newest(self, up_to: int) -> tuple[int, list[ProducerEntry]]:
        """Returns the offset and entries of the newest readable snapshot; (-1, []) if there is none."""
        for offset in reversed([offset for offset in self.offsets if offset <= up_to]):
            try:
                return offset, read_snapshot(self._disk, self.path(offset))
            except CorruptSnapshotError as error:
                logger.warning("removing the producer snapshot %s: %s", self.path(offset), error)
                self.remove([offset])
        return -1, []

    def remove(self, offsets: Iterable[int]) -> None:
        for offset in set(offsets).intersection(self.offsets):
            self._disk.remove(self.path(offset))
            self.offsets.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Keeps one snapshot per segment, and the newest: a start needs no others."""
        self.remove(set(self.offsets[:-1]).difference(base_offsets))

    def mark_deleted(self, offsets: Iterable[int]) -> list[str]:
        """Renames the snapshots of deleted segments. Returns the paths to remove later."""
        renamed = []
        for offset in sorted(set(offsets).intersection(self.offsets)):
            path = self.path(offset) + DELETED_SUFFIX
            self._disk.rename(self.path(offset), path)
            self.offsets.remove(offset)
            renamed.append(path)
        return renamed
