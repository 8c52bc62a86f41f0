"""Reads the records of a decompressed batch in windows, so that columns of millions of records need little memory."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.columns import PADDING, Ints, RecordBuffer
from ottla.records.header import BatchHeader, Bytes

WINDOW_BYTES = 1 << 20
# How much is read of a record that is larger than a window: more than the fields before its key.
_HEAD_BYTES = 64


class Window(NamedTuple):
    """Consecutive complete records. `position` and `end` are in the batch, `starts` and `ends` in `buffer`."""

    buffer: RecordBuffer
    starts: Ints
    ends: Ints
    first: int  # the index of the first record in the batch
    position: int
    end: int
    is_cut: bool  # a single large record, of which `buffer` has only the start


def iter_windows(data: Bytes, records_count: int) -> Iterator[Window]:
    """Stops before an incomplete record or after `records_count` records; the caller must check the end of the last
    window.

    Raises KafkaError(CORRUPT_MESSAGE) if the length of a record is malformed.
    """
    view = memoryview(data)
    position, first = 0, 0
    while first < records_count and position < len(view):
        piece = view[position : position + WINDOW_BYTES]
        buffer = RecordBuffer(b"".join((piece, PADDING)))
        found_starts, end = buffer.complete_records(0, records_count - first, len(piece))
        if found_starts:
            starts = np.array(found_starts, np.int64)
            ends = np.append(starts[1:], end)
            yield Window(buffer, starts, ends, first, position, position + end, False)
        else:
            lengths, bodies = buffer.varints(np.zeros(1, np.int64))
            end = int(bodies[0] + lengths[0])
            if position + end > len(view):
                return
            head = RecordBuffer(b"".join((view[position : position + _HEAD_BYTES], PADDING)))
            yield Window(head, np.zeros(1, np.int64), np.array([end]), first, position, position + end, True)
        first += max(len(found_starts), 1)
        position += end


def iter_offsets_and_timestamps(data: Bytes, header: BatchHeader) -> Iterator[tuple[Ints, Ints]]:
    """The offsets and timestamps of a batch, which may be compacted; `data` has its decompressed records.

    Raises KafkaError(CORRUPT_MESSAGE) if a record is malformed, or if there are fewer than the header says.
    """
    found = 0
    try:
        for window in iter_windows(data, header.records_count):
            deltas, offset_positions = window.buffer.varints(window.buffer.bodies(window.starts) + 1)
            offset_deltas, behind = window.buffer.varints(offset_positions)
            if bool(np.any(behind > window.ends)):
                raise _corrupt(header, "an offset reaches beyond its record")
            timestamps = header.base_timestamp + deltas
            if header.is_log_append_time:
                timestamps[:] = header.max_timestamp
            found = window.first + len(window.starts)
            yield header.base_offset + offset_deltas, timestamps
    except IndexError:
        raise _corrupt(header, "a record reaches beyond the batch") from None
    if found < header.records_count:
        raise _corrupt(header, f"it has {found} of {header.records_count} records")


def _corrupt(header: BatchHeader, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"the batch at offset {header.base_offset} cannot be read: {reason}"
    )
