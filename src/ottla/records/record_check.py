"""Checks whether the records of a client's batch match its header.

It checks framing, record count, offset deltas, header keys, and the topic's rules for keys and timestamps. A small
number of records is read one by one. A large number is read in columns, one window of the batch at a time, so that the
memory does not grow with it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.compression import CODEC_NAMES, starts_like
from ottla.records.header import COMPRESSION_MASK, HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Bytes
from ottla.records.varint import read_varint

# With fewer records than this, or with larger records (few per window), a plain loop is faster than numpy.
COLUMNS_MIN = 4096
_COLUMNS_RECORD_BYTES_MAX = 256
# The maximum number of record errors in a response: a batch may have millions, and the client fails all of it anyway.
RECORD_ERRORS_MAX = 100
# Length, attributes, two deltas, key and value lengths, header count: a byte each.
_RECORD_SIZE_MIN = 7
NULL = 1  # the varint of -1, the length of a null key or value
VARINT_BYTES_MAX = 5  # of a 32-bit number; Kafka rejects longer ones

# `check_start` reads _START_RECORDS records of an uncompressed batch, and one more per _START_BYTES_PER_RECORD.
_START_RECORDS = 4
_START_BYTES_PER_RECORD = 32 * 1024


class TimeBounds(NamedTuple):
    """None means no bound."""

    oldest: int | None = None
    newest: int | None = None


NO_BOUNDS = TimeBounds()


class CheckedRecords:
    """The findings of the check so far."""

    def __init__(self, header: BatchHeader, bounds: TimeBounds = NO_BOUNDS) -> None:
        self.header = header
        self.bounds = bounds
        self.max_timestamp = NO_TIMESTAMP
        self.missing_keys = 0
        self.without_key: list[int] = []  # the first RECORD_ERRORS_MAX of them
        self.out_of_bounds: list[tuple[int, int]] = []  # likewise, as (index, timestamp)

    def missing_key(self, index: int) -> None:
        self.missing_keys += 1
        if len(self.without_key) < RECORD_ERRORS_MAX:
            self.without_key.append(index)

    def check_bounds(self, index: int, timestamp: int) -> None:
        oldest, newest = self.bounds
        if timestamp != NO_TIMESTAMP and (
            (oldest is not None and timestamp < oldest) or (newest is not None and timestamp > newest)
        ):
            self.note_out_of_bounds([(index, timestamp)])

    def note_out_of_bounds(self, found: Sequence[tuple[int, int]]) -> None:
        self.out_of_bounds += found[: RECORD_ERRORS_MAX - len(self.out_of_bounds)]


def check_start(batch: Bytes, header: BatchHeader) -> None:
    """The cheap part of the check, for every append. Raises KafkaError(INVALID_RECORD).

    For a compressed batch it checks the magic of the codec. Otherwise it checks the lengths and offset deltas of the
    first records (all of a small batch), and that the remaining bytes can contain the remaining records.
    """
    codec = header.attributes & COMPRESSION_MASK
    if codec:
        if not starts_like(codec, batch, HEADER_SIZE):
            raise invalid(f"they are not {CODEC_NAMES[codec]}, which the batch is marked with")
        return
    end, count = header.batch_length + LOG_OVERHEAD, header.records_count
    checked = _START_RECORDS + end // _START_BYTES_PER_RECORD
    unchecked = count - checked
    if unchecked < 0:
        checked, unchecked = count, 0
    try:
        left = end - _walk_start(batch, HEADER_SIZE, checked)
    except IndexError:
        raise invalid("a record reaches beyond the batch") from None
    except ValueError as error:
        raise invalid(str(error)) from None
    if left < unchecked * _RECORD_SIZE_MIN or (left and not unchecked):
        raise invalid(f"{left} bytes follow record {checked} of {count}")


def _walk_start(data: Bytes, position: int, count: int) -> int:
    """The position after the first `count` records. Runs for every request, so it does as little as possible."""
    for index in range(count):
        if (low := data[position]) & 1:
            raise ValueError(f"record {index} claims a length below zero")
        if low < 0x80:
            following, position = position + 1 + (low >> 1), position + 2
        elif (high := data[position + 1]) < 0x80:
            following, position = position + 2 + ((low & 0x7F | high << 7) >> 1), position + 3
        else:
            length, position = _read_int(data, position)
            following, position = position + length, position + 1
        while data[position] >= 0x80:  # the timestamp
            position += 1
        if data[position + 1] != index << 1 and (delta := _read_int(data, position + 1)[0]) != index:
            raise ValueError(f"record {index} has the offset delta {delta}")
        position = following
    return position


def check_records(data: Bytes, header: BatchHeader, bounds: TimeBounds = NO_BOUNDS) -> CheckedRecords:
    """Checks all records of a batch; `data` has its decompressed bytes after the header.

    Raises KafkaError(INVALID_RECORD) if they are not `records_count` complete records with the offset deltas 0, 1, 2...
    """
    found = CheckedRecords(header, bounds)
    if header.records_count * _RECORD_SIZE_MIN > len(data):
        raise invalid(f"{len(data)} bytes cannot hold {header.records_count} records")
    if header.records_count < COLUMNS_MIN or len(data) > header.records_count * _COLUMNS_RECORD_BYTES_MAX:
        end = check_one_by_one(data, 0, len(data), 0, header.records_count, found)
    else:
        # Imported for the first large batch, so that a broker starts without numpy.
        from ottla.records.column_check import check_in_columns

        end = check_in_columns(data, found)
    if end != len(data):
        raise invalid(f"{len(data) - end} bytes follow the last of {header.records_count} records")
    return found


def invalid(reason: str) -> KafkaError:
    # Not CORRUPT_MESSAGE, which makes a producer retry: the checksum was right, so a retry cannot help.
    return KafkaError(ErrorCode.invalid_record, f"the records of the batch cannot be read: {reason}")


# -- one by one


def check_one_by_one(
    data: Bytes, position: int, end: int, first: int, count: int, found: CheckedRecords
) -> int:
    """Checks `count` records from `position`, the first of which has the index `first`; returns their end position."""
    try:
        return _read_one_by_one(data, position, end, first, count, found)
    except IndexError:
        raise invalid("a field reaches beyond the batch") from None
    except ValueError as error:
        raise invalid(str(error)) from None


def _read_one_by_one(
    data: Bytes, position: int, end: int, first: int, count: int, found: CheckedRecords
) -> int:
    """Decodes varints of one or two bytes inline, because most are that short and this runs for each record."""
    base_timestamp, max_timestamp = found.header.base_timestamp, found.max_timestamp
    is_bounded = found.bounds != NO_BOUNDS
    for index in range(first, first + count):
        if (low := data[position]) < 0x80:
            length, position = (low >> 1) ^ -(low & 1), position + 1
        elif (high := data[position + 1]) < 0x80:
            length, position = ((low & 0x7F | high << 7) >> 1) ^ -(low & 1), position + 2
        else:
            length, position = _read_int(data, position)
        record_end = position + length
        if length < 0 or record_end > end:
            raise ValueError(f"record {index} claims {length} bytes where {end - position} are left")
        # The timestamp follows the attributes, which are unused.
        if (low := data[position + 1]) < 0x80:
            timestamp, position = base_timestamp + ((low >> 1) ^ -(low & 1)), position + 2
        elif (high := data[position + 2]) < 0x80:
            delta, position = ((low & 0x7F | high << 7) >> 1) ^ -(low & 1), position + 3
            timestamp = base_timestamp + delta
        else:
            delta, position = read_varint(data, position + 1)
            timestamp = _as_int64(base_timestamp + delta)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if is_bounded:
            found.check_bounds(index, timestamp)
        if (low := data[position]) < 0x80 and low == index << 1:
            position += 1
        elif data[position + 1] == index >> 6 < 0x80 and low == (index << 1 & 0x7F | 0x80):
            position += 2
        else:
            delta, position = _read_int(data, position)
            if delta != index:
                raise ValueError(f"record {index} has the offset delta {delta}")
        if (low := data[position]) == NULL:
            found.missing_key(index)
            position += 1
        elif low < 0x80 and not low & 1:
            position += 1 + (low >> 1)
        else:
            position = _skip_bytes(data, position)
        if (low := data[position]) < 0x80 and not low & 1:
            position += 1 + (low >> 1)
        elif (high := data[position + 1]) < 0x80 <= low and not low & 1:
            position += 2 + ((low & 0x7F | high << 7) >> 1)
        else:
            position = _skip_bytes(data, position)
        position = position + 1 if data[position] == 0 else _skip_headers(data, position, record_end)
        if position != record_end:
            raise ValueError(f"record {index} ends {position - record_end} bytes after its length says")
    found.max_timestamp = max_timestamp
    return position


def _skip_bytes(data: Bytes, position: int) -> int:
    """The position after a key or value of a record or header."""
    length, position = _read_int(data, position)
    if length >= 0:
        return position + length
    if length != -1:
        raise ValueError(f"a field has the length {length}")
    return position


def _skip_headers(data: Bytes, position: int, end: int) -> int:
    count, position = _read_int(data, position)
    if not 0 <= count <= end - position:
        raise ValueError(f"a record claims {count} headers where it has {end - position} bytes left")
    return skip_header_fields(data, position, end, count)


def skip_header_fields(data: Bytes, position: int, end: int, count: int) -> int:
    for _ in range(count):
        length, position = _read_int(data, position)
        if not 0 <= length <= end - position:
            raise ValueError(f"a header's key claims {length} bytes where {end - position} are left")
        position = _skip_bytes(data, position + length)
        if position > end:
            raise ValueError("a header reaches beyond its record")
    return position


def _read_int(data: Bytes, position: int) -> tuple[int, int]:
    value, behind = read_varint(data, position)
    if behind - position > VARINT_BYTES_MAX:
        raise ValueError(f"a 32-bit varint has more than {VARINT_BYTES_MAX} bytes")
    return value, behind


def _as_int64(timestamp: int) -> int:
    """Wraps at 64 bits, as an addition in Java does."""
    if -(1 << 63) <= timestamp < 1 << 63:
        return timestamp
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
