"""One tight pass over the records of a batch that reads what stands before the key and skips the rest."""

from typing import NamedTuple

from ottla.records.header import BatchHeader
from ottla.records.records import corrupt_records
from ottla.records.varint import ONE_BYTE_VARINTS, read_varint


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
        raise corrupt_records(header, error) from error


def _scan(data: bytes, header: BatchHeader) -> RecordPositions:
    columns = timestamps, offset_deltas, key_lengths = RecordPositions([], [], [])
    size = len(data)
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_timestamp = header.base_timestamp
    position = 0
    for _ in range(header.records_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise ValueError(f"a record claims {length} bytes where {size - position} are left")
        # Varints of one byte are read here, without a call: most are, and this runs for each record.
        position += 1
        if (delta := ONE_BYTE_VARINTS[data[position]]) is not None:
            position += 1
        else:
            delta, position = read_varint(data, position)
        timestamps.append(base_timestamp + delta if append_time is None else append_time)
        if (delta := ONE_BYTE_VARINTS[data[position]]) is not None:
            position += 1
        else:
            delta, position = read_varint(data, position)
        offset_deltas.append(delta)
        if (key_length := ONE_BYTE_VARINTS[data[position]]) is not None:
            position += 1
        else:
            key_length, position = read_varint(data, position)
        if position > end or position + key_length > end:
            raise ValueError(f"a key claims {key_length} bytes where its record has {end - position} left")
        key_lengths.append(key_length)
        position = end
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last of {header.records_count} records")
    return columns
