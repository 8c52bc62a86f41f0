"""One tight pass over the records of a batch that reads what stands before the key and skips the rest."""

from typing import NamedTuple

from ottla.records.header import BatchHeader
from ottla.records.records import corrupt_records
from ottla.records.varint import read_varint


class RecordPositions(NamedTuple):
    """Three columns, one entry per record."""

    timestamps: list[int]
    offset_deltas: list[int]
    key_lengths: list[int]


def scan_records(data: bytes, header: BatchHeader) -> RecordPositions:
    """`data` is what `unpacked_records` gave. Raises KafkaError(CORRUPT_MESSAGE) for malformed records."""
    try:
        return _scan(data, header)
    except (IndexError, ValueError) as error:
        raise corrupt_records(header, str(error)) from error


def _scan(data: bytes, header: BatchHeader) -> RecordPositions:
    columns = RecordPositions([], [], [])
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    position = 0
    for _ in range(header.records_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > len(data):
            raise ValueError(f"a record claims {length} bytes where {len(data) - position} are left")
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key_length, position = read_varint(data, position)
        if position + max(key_length, 0) > end:
            raise ValueError(f"a key claims {key_length} bytes where its record has {end - position} left")
        columns.timestamps.append(base_timestamp + timestamp_delta if append_time is None else append_time)
        columns.offset_deltas.append(offset_delta)
        columns.key_lengths.append(key_length)
        position = end
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last of {header.records_count} records")
    return columns
