"""Scans the batches of a log file by their headers."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_matches,
    read_header,
)

# Base offset, batch length, last offset delta: the header fields that a search needs.
_OFFSETS_AND_LENGTH = Struct(">qi11xi")
_SHORT_SCAN_BYTES = 8 * 1024
_LONG_SCAN_BYTES = 1024 * 1024
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD


class PlacedBatch(NamedTuple):
    position: int
    size: int
    base_offset: int


class WholeBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


def find_batch(file: File, position: int, end: int, offset: int) -> PlacedBatch | None:
    """The first batch between `position` and `end` whose last offset is `offset` or greater."""
    window, window_start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - window_start
        if at + _OFFSETS_AND_LENGTH.size > len(window):
            window, window_start, at = file.read_at(position, _SHORT_SCAN_BYTES), position, 0
            if len(window) < _OFFSETS_AND_LENGTH.size:
                return None
        base_offset, length, delta = _OFFSETS_AND_LENGTH.unpack_from(window, at)
        if length < _MIN_LENGTH:
            raise _corrupt(file, position, length)
        if base_offset + delta >= offset:
            return PlacedBatch(position, length + LOG_OVERHEAD, base_offset)
        position += length + LOG_OVERHEAD
    return None


def iter_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of each batch from `position` on. Checks nothing but the batch length."""
    window, window_start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = file.read_at(position, _SHORT_SCAN_BYTES), position, 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        if header.batch_length < _MIN_LENGTH:
            raise _corrupt(file, position, header.batch_length)
        yield position, header
        position += header.size


def iter_valid_batches(file: File, end: int, first_offset: int) -> Iterator[WholeBatch]:
    """Yields batches up to the first one that is torn, fails its checksum, or has an offset out of order."""
    position, window_start, window = 0, 0, memoryview(b"")
    while position + HEADER_SIZE <= end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window, window_start, at = memoryview(file.read_at(position, _LONG_SCAN_BYTES)), position, 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, at)
        size = header.size
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            return
        if at + size > len(window):
            window, window_start, at = (
                memoryview(file.read_at(position, max(size, _LONG_SCAN_BYTES))),
                position,
                0,
            )
        if len(window) - at < size or not crc_matches(window, at, header):
            return
        if header.base_offset < first_offset or header.last_offset_delta < 0:
            return
        yield WholeBatch(position, header, window[at : at + size])
        first_offset = header.next_offset
        position += size


def read_whole_batch(file: File, position: int, end: int) -> WholeBatch | None:
    """The batch at `position`; None if it is torn or fails its checksum. Does not check its offset."""
    if position + HEADER_SIZE > end:
        return None
    size = read_header(file.read_at(position, HEADER_SIZE)).size
    return _whole_batch(
        memoryview(file.read_at(position, min(max(size, HEADER_SIZE), end - position))), 0, position
    )


def find_valid_batch(file: File, position: int, end: int, first_offset: int) -> WholeBatch | None:
    """The first whole batch that begins anywhere at or after `position`; the bytes before it may be damaged."""
    content, magic = file.read_at(position, end - position), bytes((MAGIC,))
    data = memoryview(content)
    at = content.find(magic, MAGIC_POSITION)
    while at >= 0:
        batch = _whole_batch(data, at - MAGIC_POSITION, position)
        if batch is not None and batch.header.base_offset >= first_offset:
            return batch
        at = content.find(magic, at + 1)
    return None


def _whole_batch(data: memoryview, start: int, data_position: int) -> WholeBatch | None:
    if start + HEADER_SIZE > len(data):
        return None
    header = read_header(data, start)
    is_whole = header.magic == MAGIC and HEADER_SIZE <= header.size <= len(data) - start
    if not is_whole or header.last_offset_delta < 0 or not crc_matches(data, start, header):
        return None
    return WholeBatch(data_position + start, header, data[start : start + header.size])


def _corrupt(file: File, position: int, length: int) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message,
        f"{file.path} is damaged at position {position}: the batch there has the length {length}. "
        "Restore the file from a backup, or delete the records up to the next readable one (DeleteRecords)",
    )
