"""`.snapshot` files: what a log knew of its producers at an offset, so that a start need not read the log again.

Kafka's format: version, CRC32C of all that follows it, number of entries, entries.
"""

from struct import Struct

from ottla.core.partition.producers import ProducerEntry
from ottla.env.disk import Disk
from ottla.records.checksum import crc32c

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of
# the open transaction: the fields of ProducerEntry in their order.
_ENTRY = Struct(">qhiqiqiq")
_VERSION = 1


class CorruptSnapshotError(Exception):
    """A snapshot that cannot be used; an older one, or the log itself, takes its place."""


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    body = b"".join((_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    head_size = _HEAD.size + _COUNT.size
    if len(data) < head_size:
        raise CorruptSnapshotError(f"it has {len(data)} bytes")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"it has version {version}; version {_VERSION} is known")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptSnapshotError("its CRC32C does not match its bytes")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    if len(data) != head_size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"it promises {count} producers and has {len(data)} bytes")
    return [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[head_size:])]


def read_snapshot(disk: Disk, path: str) -> list[ProducerEntry]:
    return decode_snapshot(disk.read_bytes(path))
