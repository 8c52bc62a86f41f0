"""Checks many records in columns: each numpy operation handles the same field of thousands of records."""

import numpy as np

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.columns import Ints, RecordBuffer
from ottla.records.header import Bytes
from ottla.records.record_check import (
    RECORD_ERRORS_MAX,
    VARINT_BYTES_MAX,
    CheckedRecords,
    check_one_by_one,
    invalid,
    skip_header_fields,
)
from ottla.records.windows import Window, iter_windows

_LANES_MIN = 24  # if fewer records have headers left, a plain loop is faster than numpy


def check_in_columns(data: Bytes, found: CheckedRecords) -> int:
    """Checks all records of `data`; returns the position of their end. Raises KafkaError(INVALID_RECORD)."""
    count = found.header.records_count
    end, checked = 0, 0
    try:
        for window in iter_windows(data, count):
            if window.is_cut:
                check_one_by_one(data, window.position, window.end, window.first, 1, found)
            else:
                _check_window(window, found)
            end, checked = window.end, window.first + len(window.starts)
    except KafkaError as error:
        raise KafkaError(ErrorCode.invalid_record, error.message) from error
    except IndexError:
        raise invalid("a field reaches beyond the batch") from None
    if checked < count:
        raise invalid(f"only {checked} of {count} are there")
    return end


def _check_window(window: Window, found: CheckedRecords) -> None:
    buffer, starts, ends = window.buffer, window.starts, window.ends
    bodies = buffer.bodies(starts)
    deltas, offset_positions = buffer.varints(bodies + 1)
    offset_deltas, key_positions = buffer.varints(offset_positions)
    indexes = np.arange(window.first, window.first + len(starts))
    if bool(np.any(offset_deltas != indexes)):
        wrong = int(np.flatnonzero(offset_deltas != indexes)[0])
        raise invalid(f"record {window.first + wrong} has the offset delta {int(offset_deltas[wrong])}")
    key_starts, key_lengths, value_positions = buffer.fields(key_positions, ends)
    value_starts, _, count_positions = buffer.fields(value_positions, ends)
    header_counts, behind = buffer.varints(count_positions)
    for positions, after in (
        (starts, bodies),
        (offset_positions, key_positions),
        (key_positions, key_starts),
        (value_positions, value_starts),
        (count_positions, behind),
    ):
        _check_widths(positions, after)
    if bool(np.any(header_counts)):
        _skip_headers_in_columns(buffer, header_counts, behind, ends)
    if bool(np.any(behind != ends)):
        wrong = int(np.flatnonzero(behind != ends)[0])
        raise invalid(f"the fields of record {window.first + wrong} do not end where its length says")
    _take_keys(found, window.first, key_lengths)
    _take_timestamps(found, window.first, found.header.base_timestamp + deltas)


def _check_widths(positions: Ints, behind: Ints) -> None:
    if int((behind - positions).max()) > VARINT_BYTES_MAX:
        raise invalid(f"a 32-bit varint has more than {VARINT_BYTES_MAX} bytes")


def _skip_headers_in_columns(buffer: RecordBuffer, counts: Ints, behind: Ints, ends: Ints) -> None:
    """Moves `behind` past the headers of each record; each step skips one header of all records."""
    if bool(np.any((counts < 0) | (counts > ends - behind))):
        raise invalid("a record claims more headers than it has bytes for")
    rows = np.flatnonzero(counts)
    left = counts[rows]
    while len(rows) >= _LANES_MIN:
        key_positions = behind[rows]
        key_starts, key_lengths, value_positions = buffer.fields(key_positions, ends[rows])
        if bool(np.any(key_lengths < 0)):
            raise invalid("a header has no key")
        value_starts, _, after = buffer.fields(value_positions, ends[rows])
        _check_widths(key_positions, key_starts)
        _check_widths(value_positions, value_starts)
        behind[rows] = after
        left -= 1
        rows, left = rows[left > 0], left[left > 0]
    for row, count in zip(rows.tolist(), left.tolist(), strict=True):
        try:
            behind[row] = skip_header_fields(buffer.data, int(behind[row]), int(ends[row]), count)
        except ValueError as error:
            raise invalid(str(error)) from None


def _take_keys(found: CheckedRecords, first: int, key_lengths: Ints) -> None:
    rows = np.flatnonzero(key_lengths < 0)
    found.missing_keys += len(rows)
    found.without_key += (first + rows[: RECORD_ERRORS_MAX - len(found.without_key)]).tolist()


def _take_timestamps(found: CheckedRecords, first: int, timestamps: Ints) -> None:
    found.max_timestamp = max(found.max_timestamp, int(timestamps.max()))
    oldest, newest = found.bounds
    if oldest is None and newest is None:
        return
    outside = np.zeros(len(timestamps), np.bool_)
    if oldest is not None:
        outside |= timestamps < oldest
    if newest is not None:
        outside |= timestamps > newest
    rows = np.flatnonzero(outside & (timestamps != NO_TIMESTAMP))[:RECORD_ERRORS_MAX]
    found.note_out_of_bounds(list(zip((first + rows).tolist(), timestamps[rows].tolist(), strict=True)))
