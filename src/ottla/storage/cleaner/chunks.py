"""Reads closed segments in chunks of whole batches, a few megabytes each, and checks every batch."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

import numpy as np

from ottla.env.disk import File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c
from ottla.records.columns import PADDING, Ints
from ottla.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION
from ottla.storage.cleaner.batch_columns import BatchColumns, ScannedBatches, merge_adjacent

# Large, so that each call of numpy works on many batches.
CHUNK_BYTES = 8 << 20

# Called with a number of bytes before they are used. It may wait, or raise to end the work.
Throttle = Callable[[int], None]

_LENGTH = Struct(">8xi")  # the batch length, which follows the base offset


class Chunk(NamedTuple):
    """Valid until the next chunk is read, which uses the same buffer."""

    data: bytearray  # at least len(PADDING) bytes follow the last batch
    batches: BatchColumns
    is_last: bool = False  # the last chunk of the segment
    position: int = 0  # where the buffer begins in the file; meaningless if batches are left out


class ChunkReader:
    def __init__(self, chunk_bytes: int, throttle: Throttle) -> None:
        # One buffer for all chunks: allocating one for each would take as long as reading it.
        self._buffer = bytearray(chunk_bytes + len(PADDING))
        self._throttle = throttle

    def read(self, file: File, end: int, *, is_checked: bool = False) -> Iterator[Chunk]:
        """The batches up to `end`. `is_checked`: their checksums need not be checked again.

        Raises KafkaError(CORRUPT_MESSAGE) at a batch that is not whole or fails its checksum.
        """
        position = 0
        while position < end:
            wanted = min(len(self._buffer) - len(PADDING), end - position)
            length = file.read_into(position, memoryview(self._buffer)[:wanted])
            positions, used, missing = self._find_batches(file.path, position, length)
            if not positions:
                if length < wanted or not wanted < missing <= end - position:
                    raise _corrupt(file.path, position, "the batch reaches beyond the end of the file")
                self._buffer = bytearray(missing + len(PADDING))
                continue
            batches = BatchColumns.at(self._buffer, positions)
            if not is_checked:
                self._check(file.path, position, batches)
            self._throttle(used)
            yield Chunk(self._buffer, batches, position + used == end, position)
            position += used

    def read_again(self, file: File, batches: ScannedBatches, wanted: Ints) -> Iterator[Chunk]:
        """Only the batches with the indexes `wanted`: the header alone was enough to drop the others."""
        sizes = (batches.ends - batches.positions)[wanted]
        ends = np.cumsum(sizes)
        first = before = 0
        while first < len(wanted):
            room = len(self._buffer) - len(PADDING)
            end = max(first + 1, int(np.searchsorted(ends, before + room, side="right")))
            part = wanted[first:end]
            self._fill(file, *merge_adjacent(batches.positions[part], batches.ends[part]))
            positions = (ends[first:end] - sizes[first:end] - before).tolist()
            self._throttle(int(ends[end - 1]) - before)
            yield Chunk(self._buffer, BatchColumns.at(self._buffer, positions), end == len(wanted))
            first, before = end, int(ends[end - 1])

    def _fill(self, file: File, starts: Ints, ends: Ints) -> None:
        """Reads these ranges of the file into the buffer, one after the other."""
        size = int((ends - starts).sum())
        if size > len(self._buffer) - len(PADDING):
            self._buffer = bytearray(size + len(PADDING))
        view, filled = memoryview(self._buffer), 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if file.read_into(start, view[filled : filled + end - start]) < end - start:
                raise _corrupt(file.path, start, "the file ends before a batch that was there a moment ago")
            filled += end - start

    def _find_batches(self, path: str, base: int, length: int) -> tuple[list[int], int, int]:
        """Returns the positions of whole batches, their total size, and the size of the next batch if it is cut off."""
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
        checksums = batches.headers["crc"].tolist()
        for position, end, crc in zip(
            batches.positions.tolist(), batches.ends.tolist(), checksums, strict=True
        ):
            if crc32c(view[position + CRC_START : end]) != crc:
                raise _corrupt(path, base + position, "the CRC32C of the batch does not match")


def _corrupt(path: str, position: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.corrupt_message,
        f"{path} is damaged at position {position} and cannot be compacted: {reason}",
    )
