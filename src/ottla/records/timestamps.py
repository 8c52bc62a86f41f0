"""Lookups by time inside one batch, exact to the record, also where the batch is compressed."""

from typing import NamedTuple

from ottla.records.compression import UNPACKED_BYTES_MAX
from ottla.records.header import BatchHeader, Bytes
from ottla.records.records import unpacked_records, whole_header
from ottla.records.scan import RecordPositions, scan_records


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int


def find_by_timestamp(
    batch: Bytes, target: int, start_offset: int = 0, limit: int = UNPACKED_BYTES_MAX
) -> OffsetAndTimestamp | None:
    """The first record of `batch` at or after both the time `target` and `start_offset` (the log's start)."""
    header = whole_header(batch)
    if header.max_timestamp < target or header.last_offset < start_offset:
        return None
    records = _records(batch, header, limit)
    for timestamp, delta in zip(records.timestamps, records.offset_deltas, strict=True):
        if timestamp >= target and header.base_offset + delta >= start_offset:
            return OffsetAndTimestamp(header.base_offset + delta, timestamp)
    return None


def offset_of_max_timestamp(batch: Bytes, limit: int = UNPACKED_BYTES_MAX) -> OffsetAndTimestamp | None:
    """The first record with the batch's largest timestamp (KIP-734); None where compaction left no record."""
    header = whole_header(batch)
    records = _records(batch, header, limit)
    if not records.timestamps:
        return None
    latest = max(records.timestamps)
    delta = records.offset_deltas[records.timestamps.index(latest)]
    return OffsetAndTimestamp(header.base_offset + delta, latest)


def _records(batch: Bytes, header: BatchHeader, limit: int) -> RecordPositions:
    return scan_records(unpacked_records(batch, 0, header, limit), header)
