"""Closed segments, a few megabytes of whole batches at a time, each batch checked."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from ottla.storage.cleaner.columns import PADDING

# Large, so that numpy has many batches to work on side by side.
CHUNK_BYTES = 16 << 20

Pace = Callable[[int], None]  # told of bytes before they are used: it may wait, or end the work by raising


class PlacedHeader(NamedTuple):
    position: int  # in the chunk
    header: BatchHeader


class Chunk(NamedTuple):
    data: bytes  # with at least as many bytes behind the last batch as PADDING has
    batches: list[PlacedHeader]
    is_last: bool = False  # nothing of the segment follows


def iter_chunks(file: File, position: int, end: int, chunk_bytes: int, pace: Pace) -> Iterator[Chunk]:
    """KafkaError(CORRUPT_MESSAGE) where what lies between `position` and `end` is not whole, sound batches."""
    wanted = chunk_bytes
    while position < end:
        data = file.read_at(position, min(wanted, end - position))
        batches, used, missing = _batches(file.path, position, data)
        if not batches:
            if not 0 < missing <= end - position or len(data) < min(wanted, end - position):
                raise _corrupt(file.path, position, "a batch reaches beyond the end of the file")
            wanted = missing
            continue
        wanted = chunk_bytes
        pace(used)
        # What is left of a batch that is not whole will do for padding, without a copy.
        padded = data if len(data) - used >= len(PADDING) else data + PADDING
        yield Chunk(padded, batches, position + used == end)
        position += used


def _batches(path: str, base: int, data: bytes) -> tuple[list[PlacedHeader], int, int]:
    """(the whole batches of `data`, how many bytes they are, how many the first would need if it is not whole)"""
    found: list[PlacedHeader] = []
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        size = header.size
        if header.magic != MAGIC or size < HEADER_SIZE:
            raise _corrupt(path, base + position, f"magic {header.magic}, {size} bytes")
        if position + size > len(data):
            break
        if not crc_matches(data, position, header):
            raise _corrupt(path, base + position, "its CRC32C does not match its bytes")
        found.append(PlacedHeader(position, header))
        position += size
    missing = read_header(data, 0).size if not found and len(data) >= HEADER_SIZE else 0
    return found, position, missing


def _corrupt(path: str, position: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"{path} is damaged at position {position}, so it is not cleaned: {reason}"
    )
