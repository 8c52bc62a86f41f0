"""What is to become of the batches of a chunk, and the bytes that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ottla.records.checksum import crc32c
from ottla.records.columns import Ints, Mask
from ottla.records.header import (
    CRC,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    Bytes,
)
from ottla.storage.cleaner.batches import headers_in
from ottla.storage.cleaner.chunks import Chunk
from ottla.storage.cleaner.known_batches import joined


@dataclass(frozen=True, slots=True)
class CleanedBatches:
    """What is to be written for a chunk, in order: the bytes of all, and of each batch what the indexes need."""

    buffers: Sequence[Bytes]
    size: int
    sizes: Ints
    last_offsets: Ints
    max_timestamps: Ints
    is_changed: bool
    records_read: int
    records_kept: int


class Changes:
    """Of a chunk. A batch that nothing is said about stays as it is."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._sizes = chunk.batches.ends - chunk.batches.positions  # that the batches will have, 0: gone
        self._is_whole = np.ones(len(chunk.batches), np.bool_)
        self._rebuilt: dict[int, list[Bytes]] = {}
        self._shortened: list[Ints] = []
        self._starts: list[Ints] = []
        self._ends: list[Ints] = []

    def drop(self, batches: Mask | Ints | int) -> None:
        self._sizes[batches] = 0
        self._is_whole[batches] = False

    def keep(self, batch: int) -> None:
        """As it is, although it was to go."""
        self._sizes[batch] = self._chunk.batches.ends[batch] - self._chunk.batches.positions[batch]
        self._is_whole[batch] = True

    def rebuild(self, batch: int, parts: list[Bytes]) -> None:
        self._sizes[batch] = sum(map(len, parts))
        self._is_whole[batch] = False
        self._rebuilt[batch] = parts

    def shorten(
        self, batches: Ints, counts: Ints, sizes: Ints, max_timestamps: Ints, stretches: tuple[Ints, Ints]
    ) -> None:
        """Of these batches only the records in `stretches` (starts, ends) stay: so many, of so many bytes together.

        Byte for byte: offsets and timestamps in a record are relative to the header, which keeps its base. The header
        is changed where it lies, so that what stays of the chunk are stretches of its bytes.
        """
        columns = self._chunk.batches
        positions, headers = columns.positions[batches], headers_in(self._chunk.data)
        headers["records_count"][positions] = counts
        headers["batch_length"][positions] = sizes + (HEADER_SIZE - LOG_OVERHEAD)
        is_by_client = columns.attributes[batches] & TIMESTAMP_TYPE_MASK == 0
        headers["max_timestamp"][positions[is_by_client]] = max_timestamps[is_by_client]
        self._sizes[batches] = sizes + HEADER_SIZE
        self._is_whole[batches] = False
        self._shortened.append(batches)
        self._starts += (positions, stretches[0])
        self._ends += (positions + HEADER_SIZE, stretches[1])

    def is_gone(self) -> Mask:
        found: Mask = self._sizes == 0
        return found

    def output(self) -> CleanedBatches:
        data, columns = self._chunk.data, self._chunk.batches
        buffers = self._buffers()
        kept = np.flatnonzero(self._sizes)
        positions = columns.positions[kept]
        if self._shortened or self._rebuilt:
            data = bytearray().join(buffers)
            buffers = [data]
            ends = np.cumsum(self._sizes)
            for batches in self._shortened:
                _seal(data, ends[batches] - self._sizes[batches], ends[batches])
            positions = ends[kept] - self._sizes[kept]
        headers = headers_in(data)[positions] if len(kept) else columns.headers[:0]
        return CleanedBatches(
            buffers,
            int(self._sizes.sum()),
            self._sizes[kept],
            columns.last_offsets[kept],
            headers["max_timestamp"].astype(np.int64),
            not bool(self._is_whole.all()),
            int(columns.records_counts.sum()),
            int(headers["records_count"].sum()),
        )

    def _buffers(self) -> list[Bytes]:
        columns = self._chunk.batches
        starts, ends = joined(
            np.sort(np.concatenate([columns.positions[self._is_whole], *self._starts])),
            np.sort(np.concatenate([columns.ends[self._is_whole], *self._ends])),
        )
        view = memoryview(self._chunk.data)
        buffers: list[Bytes] = [
            view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        for batch in sorted(self._rebuilt, reverse=True):
            place = int(np.searchsorted(starts, columns.positions[batch]))
            buffers[place:place] = self._rebuilt[batch]
        return buffers


def _seal(data: bytearray, positions: Ints, ends: Ints) -> None:
    """The checksums of the batches there, made anew."""
    view = memoryview(data)
    for position, end in zip(positions.tolist(), ends.tolist(), strict=True):
        CRC.pack_into(data, position + CRC_POSITION, crc32c(view[position + CRC_START : end]))
