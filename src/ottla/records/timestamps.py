"""Lookups of records by timestamp inside one batch, which may be compressed.

They read columns, one window of the batch at a time, because a batch of a few kilobytes may contain millions of
records.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.records.compression import unpack, unpacked_bytes_max
from ottla.records.header import HEADER_SIZE, BatchHeader, Bytes
from ottla.records.records import whole_header

if TYPE_CHECKING:  # numpy is imported for the first lookup, not at startup
    from ottla.records.columns import Ints


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int


def find_by_timestamp(
    batch: Bytes, target: int, start_offset: int = 0, limit: int | None = None
) -> OffsetAndTimestamp | None:
    """The first record of `batch` with a timestamp of at least `target` and an offset of at least `start_offset`."""
    header = whole_header(batch)
    if header.max_timestamp < target or header.last_offset < start_offset:
        return None
    for offsets, timestamps in _iter_columns(batch, header, limit):
        matches = ((timestamps >= target) & (offsets >= start_offset)).nonzero()[0]
        if len(matches):
            return OffsetAndTimestamp(int(offsets[matches[0]]), int(timestamps[matches[0]]))
    return None


def offset_of_max_timestamp(batch: Bytes, limit: int | None = None) -> OffsetAndTimestamp | None:
    """The first record with the largest timestamp of the batch (KIP-734); None if compaction has removed all
    records.
    """
    latest: OffsetAndTimestamp | None = None
    for offsets, timestamps in _iter_columns(batch, whole_header(batch), limit):
        first = timestamps.argmax()
        if latest is None or timestamps[first] > latest.timestamp:
            latest = OffsetAndTimestamp(int(offsets[first]), int(timestamps[first]))
    return latest


def _iter_columns(batch: Bytes, header: BatchHeader, limit: int | None) -> "Iterator[tuple[Ints, Ints]]":
    """Offsets and timestamps of the records. Raises KafkaError(CORRUPT_MESSAGE) if they do not match the header."""
    from ottla.records.windows import iter_offsets_and_timestamps

    payload = memoryview(batch)[HEADER_SIZE : header.size]
    records = unpack(header.compression, payload, limit or unpacked_bytes_max(len(payload)))
    return iter_offsets_and_timestamps(records, header)
