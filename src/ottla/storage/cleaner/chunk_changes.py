"""The changes that compaction makes to the batches of a chunk, and the resulting bytes."""

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
from ottla.storage.cleaner.batch_builder import batch_of_records
from ottla.storage.cleaner.batch_columns import headers_in, merge_adjacent
from ottla.storage.cleaner.batch_records import BatchRecords
from ottla.storage.cleaner.chunks import Chunk


@dataclass(frozen=True, slots=True)
class CleanedBatches:
    """The batches to write for a chunk: their bytes, and the columns that the indexes need."""

    buffers: Sequence[Bytes]
    size: int
    sizes: Ints
    last_offsets: Ints
    max_timestamps: Ints
    is_changed: bool
    records_read: int
    records_kept: int


class ChunkChanges:
    """Collects changes by batch index. Batches without a change stay as they are."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._sizes = chunk.batches.ends - chunk.batches.positions  # after the changes; 0: dropped
        self._is_unchanged = np.ones(len(chunk.batches), np.bool_)
        self._rebuilt: dict[int, list[Bytes]] = {}
        self._shortened: list[Ints] = []
        # The ranges of the chunk's bytes that shortened batches keep.
        self._starts: list[Ints] = []
        self._ends: list[Ints] = []

    def drop(self, batches: Mask | Ints | int) -> None:
        self._sizes[batches] = 0
        self._is_unchanged[batches] = False

    def undo_drop(self, batch: int) -> None:
        self._sizes[batch] = self._chunk.batches.ends[batch] - self._chunk.batches.positions[batch]
        self._is_unchanged[batch] = True

    def rebuild(self, batch: int, parts: list[Bytes]) -> None:
        """Replaces the batch with `parts`."""
        self._sizes[batch] = sum(map(len, parts))
        self._is_unchanged[batch] = False
        self._rebuilt[batch] = parts

    def keep_records(self, records: BatchRecords, batches: Ints, counts: Ints, rows: Ints) -> None:
        """Drops all records of `batches` but those in `rows`, of which each batch has `counts`.

        `rows` are indexes in the columns of `records`, in order. The kept records do not change.
        """
        columns = records.columns
        first = np.cumsum(counts) - counts
        begins = np.ones(len(rows) + 1, np.bool_)
        np.not_equal(rows[1:], rows[:-1] + 1, out=begins[1 : len(rows)])
        begins[first] = True
        starts, ends = columns.starts[rows[begins[:-1]]], columns.ends[rows[begins[1:]]]
        first_range = np.cumsum(begins)[first] - 1
        sizes = np.add.reduceat(ends - starts, first_range)
        max_deltas = np.maximum.reduceat(records.buffer.timestamp_deltas(columns.bodies[rows]), first)
        max_timestamps = self._chunk.batches.headers["base_timestamp"][batches] + max_deltas
        if not records.is_decompressed:
            self._shorten_in_place(batches, counts, sizes, max_timestamps, (starts, ends))
            return
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        bounds = [*first_range.tolist(), len(spans)]
        for at, index in enumerate(batches.tolist()):
            parts = batch_of_records(
                self._chunk.batches.header(index),
                records.buffer.data,
                spans[bounds[at] : bounds[at + 1]],
                int(counts[at]),
                int(max_timestamps[at]),
            )
            self.rebuild(index, parts)

    def _shorten_in_place(
        self, batches: Ints, counts: Ints, sizes: Ints, max_timestamps: Ints, ranges: tuple[Ints, Ints]
    ) -> None:
        """Keeps only the records in `ranges` (starts, ends), which have `counts` records and `sizes` bytes per batch.

        The bytes of a record stay valid, because its offset and timestamp are relative to the header, which keeps its
        base offset and base timestamp. The header is changed in the chunk itself, so that the output consists of
        ranges of the chunk.
        """
        columns = self._chunk.batches
        positions, headers = columns.positions[batches], headers_in(self._chunk.data)
        headers["records_count"][positions] = counts
        headers["batch_length"][positions] = sizes + (HEADER_SIZE - LOG_OVERHEAD)
        is_create_time = columns.attributes[batches] & TIMESTAMP_TYPE_MASK == 0
        headers["max_timestamp"][positions[is_create_time]] = max_timestamps[is_create_time]
        self._sizes[batches] = sizes + HEADER_SIZE
        self._is_unchanged[batches] = False
        self._shortened.append(batches)
        self._starts += (positions, ranges[0])
        self._ends += (positions + HEADER_SIZE, ranges[1])

    def is_dropped(self) -> Mask:
        dropped: Mask = self._sizes == 0
        return dropped

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
                _write_checksums(data, ends[batches] - self._sizes[batches], ends[batches])
            positions = ends[kept] - self._sizes[kept]
        headers = headers_in(data)[positions] if len(kept) else columns.headers[:0]
        return CleanedBatches(
            buffers,
            int(self._sizes.sum()),
            self._sizes[kept],
            columns.last_offsets[kept],
            headers["max_timestamp"].astype(np.int64),
            not bool(self._is_unchanged.all()),
            int(columns.records_counts.sum()),
            int(headers["records_count"].sum()),
        )

    def _buffers(self) -> list[Bytes]:
        columns = self._chunk.batches
        starts, ends = merge_adjacent(
            np.sort(np.concatenate([columns.positions[self._is_unchanged], *self._starts])),
            np.sort(np.concatenate([columns.ends[self._is_unchanged], *self._ends])),
        )
        view = memoryview(self._chunk.data)
        buffers: list[Bytes] = [
            view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        for batch in sorted(self._rebuilt, reverse=True):
            place = int(np.searchsorted(starts, columns.positions[batch]))
            buffers[place:place] = self._rebuilt[batch]
        return buffers


def _write_checksums(data: bytearray, positions: Ints, ends: Ints) -> None:
    view = memoryview(data)
    for position, end in zip(positions.tolist(), ends.tolist(), strict=True):
        CRC.pack_into(data, position + CRC_POSITION, crc32c(view[position + CRC_START : end]))
