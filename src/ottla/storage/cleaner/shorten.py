"""Batches of which some records stay and some go: those that stay keep their bytes, the header is made anew."""

import numpy as np

from ottla.records.columns import Ints
from ottla.storage.cleaner.changes import Changes
from ottla.storage.cleaner.chunks import Chunk
from ottla.storage.cleaner.look import Look
from ottla.storage.cleaner.rebuild import batch_of_records


def shorten(chunk: Chunk, look: Look, batches: Ints, counts: Ints, rows: Ints, changes: Changes) -> None:
    """`counts`: how many records of each of `batches` stay; `rows`: which, batch after batch."""
    columns = look.columns
    first = np.cumsum(counts) - counts
    begins = np.ones(len(rows) + 1, np.bool_)
    np.not_equal(rows[1:], rows[:-1] + 1, out=begins[1 : len(rows)])
    begins[first] = True
    starts, ends = columns.starts[rows[begins[:-1]]], columns.ends[rows[begins[1:]]]
    first_stretch = np.cumsum(begins)[first] - 1
    sizes = np.add.reduceat(ends - starts, first_stretch)
    youngest = np.maximum.reduceat(look.buffer.timestamp_deltas(columns.bodies[rows]), first)
    max_timestamps = chunk.batches.headers["base_timestamp"][batches] + youngest
    if not look.is_packed:
        changes.shorten(batches, counts, sizes, max_timestamps, (starts, ends))
        return
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    bounds = [*first_stretch.tolist(), len(spans)]
    for at, index in enumerate(batches.tolist()):
        parts = batch_of_records(
            chunk.batches.header(index),
            look.buffer.data,
            spans[bounds[at] : bounds[at + 1]],
            int(counts[at]),
            int(max_timestamps[at]),
        )
        changes.rebuild(index, parts)
