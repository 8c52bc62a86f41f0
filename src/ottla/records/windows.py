"""The records of one unpacked batch, a window at a time, so that columns of millions of records need little memory."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.columns import PADDING, Ints, RecordBuffer
from ottla.records.header import BatchHeader, Bytes

WINDOW_BYTES = 1 << 20
# Of a record that is larger than a window: more than what stands before its key.
_HEAD_BYTES = 64


class Window(NamedTuple):
    """Whole records that follow each other. `position` and `end` are in the batch, `starts` and `ends` in `buffer`."""

    buffer: RecordBuffer
    starts: Ints
    ends: Ints
    first: int  # the index of the first record in the batch
    position: int
    end: int
    is_cut: bool  # one record, of which `buffer` has only the beginning


def iter_windows(data: Bytes, records_count: int) -> Iterator[Window]:
    """Stops before a record that is not whole, or after `records_count`: the caller looks at the last window's end.

    Raises KafkaError(CORRUPT_MESSAGE) for a record whose length cannot be read.
    """
    view = memoryview(data)
    position, first = 0, 0
    while first < records_count and position < len(view):
        piece = view[position : position + WINDOW_BYTES]
        buffer = RecordBuffer(b"".join((piece, PADDING)))
        places, end = buffer.complete_records(0, records_count - first, len(piece))
        if places:
            starts = np.array(places, np.int64)
            ends = np.append(starts[1:], end)
            yield Window(buffer, starts, ends, first, position, position + end, False)
        else:
            lengths, bodies = buffer.varints(np.zeros(1, np.int64))
            end = int(bodies[0] + lengths[0])
            if position + end > len(view):
                return
            head = RecordBuffer(b"".join((view[position : position + _HEAD_BYTES], PADDING)))
            yield Window(head, np.zeros(1, np.int64), np.array([end]), first, position, position + end, True)
        first += max(len(places), 1)
        position += end


def iter_offsets_and_timestamps(data: Bytes, header: BatchHeader) -> Iterator[tuple[Ints, Ints]]:
    """Of the records of a batch that may have been compacted; `data` are its records, unpacked.

    Raises KafkaError(CORRUPT_MESSAGE) where a record cannot be read, or there are fewer than the header says.
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
