"""Closed segments, a few megabytes of whole batches at a time, each batch checked."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c
from ottla.records.columns import PADDING, Ints
from ottla.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION
from ottla.storage.cleaner.batches import BatchColumns
from ottla.storage.cleaner.known_batches import KnownBatches, joined

# Large, so that numpy has many batches to work on side by side.
CHUNK_BYTES = 8 << 20

Pace = Callable[[int], None]  # told of bytes before they are used: it may wait, or end the work by raising

_LENGTH = Struct(">8xi")  # what an entry of the log begins with: its offset and its length


class Chunk(NamedTuple):
    """Good until the next one is asked for: the buffer is used again."""

    data: bytearray  # with at least as many bytes behind the last batch as PADDING has
    batches: BatchColumns
    is_last: bool = False  # nothing of the segment follows
    position: int = (
        0  # in the file, of what the buffer begins with; where batches are left out, of no meaning
    )


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
            places, used, missing = self._places(file.path, position, length)
            if not places:
                if length < wanted or not wanted < missing <= end - position:
                    raise _corrupt(file.path, position, "a batch reaches beyond the end of the file")
                self._buffer = bytearray(missing + len(PADDING))
                continue
            batches = BatchColumns.at(self._buffer, places)
            if not is_checked:
                self._check(file.path, position, batches)
            self._pace(used)
            yield Chunk(self._buffer, batches, position + used == end, position)
            position += used

    def read_again(self, file: File, batches: KnownBatches, wanted: Ints) -> Iterator[Chunk]:
        """Only the batches with these indexes: what goes on the word of its header need not be read a second time."""
        sizes = (batches.ends - batches.positions)[wanted]
        ends = np.cumsum(sizes)
        first = before = 0
        while first < len(wanted):
            room = len(self._buffer) - len(PADDING)
            end = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            some = wanted[first:end]
            self._fill(file, *joined(batches.positions[some], batches.ends[some]))
            places = (ends[first:end] - sizes[first:end] - before).tolist()
            self._pace(int(ends[end - 1]) - before)
            yield Chunk(self._buffer, BatchColumns.at(self._buffer, places), end == len(wanted))
            first, before = end, int(ends[end - 1])

    def _fill(self, file: File, starts: Ints, ends: Ints) -> None:
        """The stretches of the file one after the other."""
        size = int((ends - starts).sum())
        if size > len(self._buffer) - len(PADDING):
            self._buffer = bytearray(size + len(PADDING))
        view, filled = memoryview(self._buffer), 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if file.read_into(start, view[filled : filled + end - start]) < end - start:
                raise _corrupt(file.path, start, "it ends where there was a batch a moment ago")
            filled += end - start

    def _places(self, path: str, base: int, length: int) -> tuple[list[int], int, int]:
        """(where whole batches begin, how many bytes they are, how many the next would need that is not whole)"""
        found: list[int] = []
        position, data = 0, self._buffer
        while position + HEADER_SIZE <= length:
            size: int = _LENGTH.unpack_from(data, position)[0] + LOG_OVERHEAD
            if data[position + MAGIC_POSITION] != MAGIC or size < HEADER_SIZE:
                raise _corrupt(
                    path, base + position, f"magic {data[position + MAGIC_POSITION]}, {size} bytes"
                )
            if position + size > length:
                return found, position, size
            found.append(position)
            position += size
        return found, position, 0

    def _check(self, path: str, base: int, batches: BatchColumns) -> None:
        view = memoryview(self._buffer)
        places = zip(
            batches.positions.tolist(), batches.ends.tolist(), batches.headers["crc"].tolist(), strict=True
        )
        for position, end, crc in places:
            if crc32c(view[position + CRC_START : end]) != crc:
                raise _corrupt(path, base + position, "its CRC32C does not match its bytes")


def _corrupt(path: str, position: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message, f"{path} is damaged at position {position}, so it is not cleaned: {reason}"
    )
