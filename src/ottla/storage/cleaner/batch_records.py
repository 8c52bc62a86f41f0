"""Reads the records of a chunk's batches as columns, and decompresses them if needed."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.records.columns import PADDING, BatchSpans, Ints, RecordBuffer, RecordColumns
from ottla.records.header import COMPRESSION_MASK, HEADER_SIZE
from ottla.records.records import unpacked_records
from ottla.storage.cleaner.chunks import Chunk

# The decompressed size of the batches that are read together.
_DECOMPRESSED_BYTES_MAX = 16 << 20
# Records that are read together. Each of a dozen columns takes eight bytes per record.
_RECORDS_MAX = 250_000


class BatchRecords(NamedTuple):
    """The records of some batches of a chunk."""

    batches: Ints  # indexes in the chunk
    buffer: RecordBuffer
    columns: RecordColumns
    is_decompressed: bool  # `buffer` holds decompressed records, not the bytes of the chunk


def read_records(chunk: Chunk, indexes: Ints) -> Iterator[BatchRecords]:
    """The records of these batches, in the order of the log, in parts that fit into memory."""
    indexes = indexes[chunk.batches.records_counts[indexes] > 0]
    if bool(np.any(chunk.batches.attributes[indexes] & COMPRESSION_MASK)):
        yield from _read_compressed(chunk, indexes)
        return
    buffer = RecordBuffer(chunk.data)
    for part in _split(indexes, chunk.batches.records_counts[indexes]):
        batches = chunk.batches
        starts, ends = batches.positions[part] + HEADER_SIZE, batches.ends[part]
        yield BatchRecords(part, buffer, buffer.columns_at(_spans(chunk, part, starts, ends)), False)


def _split(indexes: Ints, records_counts: Ints) -> Iterator[Ints]:
    records = np.cumsum(records_counts)
    begin = before = 0
    while begin < len(indexes):
        end = max(begin + 1, int(np.searchsorted(records, before + _RECORDS_MAX, side="right")))
        yield indexes[begin:end]
        begin, before = end, int(records[end - 1])


def _read_compressed(chunk: Chunk, indexes: Ints) -> Iterator[BatchRecords]:
    """In the order of the log, because the offset map may become full after any part."""
    pieces: list[bytes] = []
    ends: list[int] = []
    size, done = 0, 0
    for at, index in enumerate(indexes.tolist()):
        header = chunk.batches.header(index)
        pieces.append(unpacked_records(chunk.data, int(chunk.batches.positions[index]), header))
        size += len(pieces[-1])
        ends.append(size)
        if size >= _DECOMPRESSED_BYTES_MAX or at + 1 == len(indexes):
            part, until = indexes[done : at + 1], np.array(ends, np.int64)
            starts = np.concatenate([np.zeros(1, np.int64), until[:-1]])
            buffer = RecordBuffer(b"".join([*pieces, PADDING]))
            yield BatchRecords(part, buffer, buffer.columns_at(_spans(chunk, part, starts, until)), True)
            pieces, ends, size, done = [], [], 0, at + 1


def _spans(chunk: Chunk, indexes: Ints, starts: Ints, ends: Ints) -> BatchSpans:
    batches = chunk.batches
    base_offsets = batches.base_offsets[indexes]
    return BatchSpans(
        starts,
        ends,
        batches.records_counts[indexes],
        base_offsets,
        batches.last_offsets[indexes] - base_offsets,
    )
