"""Looks into the batches of a chunk: their records as columns, unpacked where they are compressed."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ottla.records.columns import PADDING, BatchSpans, Ints, RecordBuffer, RecordColumns
from ottla.records.header import COMPRESSION_MASK, HEADER_SIZE
from ottla.records.records import unpacked_records
from ottla.storage.cleaner.chunks import Chunk

# Compressed batches are unpacked together up to this size.
_UNPACKED_BYTES = 16 << 20
# A column has eight bytes a record, and there are a dozen.
_RECORDS_TOGETHER = 250_000


class Look(NamedTuple):
    """What looking into the records of some batches found."""

    batches: Ints  # indexes in the chunk
    buffer: RecordBuffer
    columns: RecordColumns
    is_packed: bool  # the buffer is not the chunk's


def look_into(chunk: Chunk, indexes: Ints) -> Iterator[Look]:
    """The records of these batches in the order of the log, of as many of them together as memory allows."""
    indexes = indexes[chunk.batches.records_counts[indexes] > 0]
    if bool(np.any(chunk.batches.attributes[indexes] & COMPRESSION_MASK)):
        yield from _look_into_packed(chunk, indexes)
        return
    buffer = RecordBuffer(chunk.data)
    for some in _in_parts(indexes, chunk.batches.records_counts[indexes]):
        batches = chunk.batches
        starts, ends = batches.positions[some] + HEADER_SIZE, batches.ends[some]
        yield Look(some, buffer, buffer.columns_at(_places(chunk, some, starts, ends)), False)


def _in_parts(indexes: Ints, records_counts: Ints) -> Iterator[Ints]:
    records = np.cumsum(records_counts)
    begin = before = 0
    while begin < len(indexes):
        end = max(begin + 1, int(np.searchsorted(records, before + _RECORDS_TOGETHER, side="right")))
        yield indexes[begin:end]
        begin, before = end, int(records[end - 1])


def _look_into_packed(chunk: Chunk, indexes: Ints) -> Iterator[Look]:
    """In the order of the log: a full map must know what comes before and what after."""
    pieces: list[bytes] = []
    ends: list[int] = []
    size, done = 0, 0
    for at, index in enumerate(indexes.tolist()):
        header = chunk.batches.header(index)
        pieces.append(unpacked_records(chunk.data, int(chunk.batches.positions[index]), header))
        size += len(pieces[-1])
        ends.append(size)
        if size >= _UNPACKED_BYTES or at + 1 == len(indexes):
            some, until = indexes[done : at + 1], np.array(ends, np.int64)
            starts = np.concatenate([np.zeros(1, np.int64), until[:-1]])
            buffer = RecordBuffer(b"".join([*pieces, PADDING]))
            yield Look(some, buffer, buffer.columns_at(_places(chunk, some, starts, until)), True)
            pieces, ends, size, done = [], [], 0, at + 1


def _places(chunk: Chunk, indexes: Ints, starts: Ints, ends: Ints) -> BatchSpans:
    batches = chunk.batches
    base_offsets = batches.base_offsets[indexes]
    return BatchSpans(
        starts,
        ends,
        batches.records_counts[indexes],
        base_offsets,
        batches.last_offsets[indexes] - base_offsets,
    )
