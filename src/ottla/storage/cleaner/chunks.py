"""Closed segments, a few megabytes of whole batches at a time, each batch checked."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.columns import PADDING
from ottla.records.header import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header

# Large, so that numpy has many batches to work on side by side.
CHUNK_BYTES = 8 << 20

Pace = Callable[[int], None]  # told of bytes before they are used: it may wait, or end the work by raising


class PlacedHeader(NamedTuple):
    position: int  # in the chunk
    header: BatchHeader


class Chunk(NamedTuple):
    """Good until the next one is asked for: the buffer is used again."""

    data: bytearray  # with at least as many bytes behind the last batch as PADDING has
    batches: list[PlacedHeader]
    is_last: bool = False  # nothing of the segment follows


class ChunkReader:
    def __init__(self, chunk_bytes: int, pace: Pace) -> None:
        # One buffer for all: new memory for every chunk would cost as much as reading into it.
        self._buffer = bytearray(chunk_bytes + len(PADDING))
        self._pace = pace

    def read(self, file: File, end: int, *, is_checked: bool = False) -> Iterator[Chunk]:
        """The batches up to `end`; `is_checked`: their checksums were found right a moment ago.

        KafkaError(CORRUPT_MESSAGE) where what lies there is not whole, sound batches.
        """
        position = 0
        while position < end:
            wanted = min(len(self._buffer) - len(PADDING), end - position)
            length = file.read_into(position, memoryview(self._buffer)[:wanted])
            batches, used, missing = self._batches(file.path, position, length, is_checked)
            if not batches:
                if length < wanted or not wanted < missing <= end - position:
                    raise _corrupt(file.path, position, "a batch reaches beyond the end of the file")
                self._buffer = bytearray(missing + len(PADDING))
                continue
            self._pace(used)
            yield Chunk(self._buffer, batches, position + used == end)
            position += used

    def _batches(
        self, path: str, base: int, length: int, is_checked: bool
    ) -> tuple[list[PlacedHeader], int, int]:
        """(the whole batches, how many bytes they are, how many the first would need if it is not whole)"""
        found: list[PlacedHeader] = []
        position, data, missing = 0, self._buffer, 0
        while position + HEADER_SIZE <= length:
            header = read_header(data, position)
            size = header.size
            if header.magic != MAGIC or size < HEADER_SIZE:
                raise _corrupt(path, base + position, f"magic {header.magic}, {size} bytes")
            if position + size > length:
                missing = size
                break
            if not is_checked and not crc_matches(data, position, header):
                raise _corrupt(path, base + position, "its CRC32C does not match its bytes")
            found.append(PlacedHeader(position, header))
            position += size
        return found, position, missing


def _corrupt(path: str, position: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"{path} is damaged at position {position}, so it is not cleaned: {reason}"
    )
