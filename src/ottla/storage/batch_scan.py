"""Walks over the batches of a log file by their headers."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_matches,
    read_header,
)

# Base offset, batch length, last offset delta: what finding a batch needs of its header.
_PLACE = Struct(">qi11xi")
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
    """The first batch between `position` and `end` whose last offset is not below `offset`."""
    window, window_start = b"", position
    while position + HEADER_SIZE <= end:
        at = position - window_start
        if at + _PLACE.size > len(window):
            window, window_start, at = file.read_at(position, _SHORT_SCAN_BYTES), position, 0
            if len(window) < _PLACE.size:
                return None
        base_offset, length, delta = _PLACE.unpack_from(window, at)
        if length < _MIN_LENGTH:
            raise _corrupt(file, position, length)
        if base_offset + delta >= offset:
            return PlacedBatch(position, length + LOG_OVERHEAD, base_offset)
        position += length + LOG_OVERHEAD
    return None


def iter_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from the one at `position` on; nothing is checked but lengths."""
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
    """The batches of a file up to the first that is torn, fails its checksum or has an offset out of order."""
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


def _corrupt(file: File, position: int, length: int) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message,
        f"{file.path} is damaged at position {position}: a batch there claims {length} bytes. "
        "Restart the broker after removing the clean-shutdown marker to have the log checked and cut",
    )
