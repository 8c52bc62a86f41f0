"""Pieces of files as rows: key, value, and headers that say where a record stood, in Arrow columns."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile
from ottla.pipeline.ingest.spooldir.splitting import Splitting, last_end, split
from ottla.pipeline.ingest.spooldir.taking import read_piece
from ottla.pipeline.spark.rows import HEADERS, HEADERS_TYPE

COLUMNS = StructType(
    [StructField("key", BinaryType()), StructField("value", BinaryType()), StructField("headers", HEADERS)]
)
ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])
HEADER_FIELDS = list(HEADERS_TYPE.value_type)
HEADER_KEYS = pa.array(["file", "line", "position"])

# A batch of rows holds about so many bytes of a file: 10,000 lines of 100 bytes, as Spark's own Arrow batches.
ROWS_BYTES = 1_000_000


def rows_of(pieces: Iterable[tuple[TakenFile, Piece]]) -> Iterator[pa.RecordBatch]:
    for file, piece in pieces:
        data = read_piece(file, piece)
        name = file.name.encode("utf-8", "surrogateescape")
        position, line = piece.start, piece.line
        for part in parts(data, file.splitting.delimiter):
            batch = as_batch(part, file.splitting, name, line, position)
            position += len(part)
            line += batch.num_rows
            if batch.num_rows:
                yield batch


def parts(data: bytes, delimiter: bytes) -> Iterator[bytes]:
    """The data in parts of whole records, none much larger than it must be."""
    at, size = 0, ROWS_BYTES
    while at < len(data):
        is_rest = not delimiter or at + size >= len(data)
        part = data[at:] if is_rest else data[at : at + size]
        end = len(part) if is_rest else last_end(part, delimiter)[1]
        if end:
            yield part if end == len(part) else part[:end]
            at, size = at + end, ROWS_BYTES
        else:
            size *= 2


def as_batch(data: bytes, splitting: Splitting, name: bytes, line: int, position: int) -> pa.RecordBatch:
    records = split(data, splitting)
    count = len(records)
    values = pa.array(records, pa.binary())
    key = pa.repeat(pa.scalar(name if splitting.keyed_by_file else None, pa.binary()), count)
    headers = headers_of(name, line, starts_of(data, splitting, records) + position)
    return pa.RecordBatch.from_arrays([key, values, headers], schema=ARROW)


def starts_of(
    data: bytes, splitting: Splitting, records: list[bytes]
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Where each record begins in the data."""
    whole = records
    if splitting.cuts_carriage_return:
        whole = split(data, splitting._replace(cuts_carriage_return=False))
    starts = np.zeros(len(whole), np.int64)
    lengths = np.fromiter(map(len, whole[:-1]), np.int64, max(0, len(whole) - 1))
    np.cumsum(lengths + len(splitting.delimiter), out=starts[1:])
    return starts


def headers_of(name: bytes, line: int, positions: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """For each record its file, line and position, as text."""
    count = len(positions)
    lines = pa.array(np.arange(line, line + count)).cast(pa.string()).cast(pa.binary())
    texts = pa.concat_arrays(
        [pa.array([name], pa.binary()), lines, pa.array(positions).cast(pa.string()).cast(pa.binary())]
    )
    places = np.zeros((count, 3), np.int64)
    places[:, 1] = np.arange(1, 1 + count)
    places[:, 2] = places[:, 1] + count
    keys = pc.take(HEADER_KEYS, pa.array(np.tile(np.arange(3), count)))
    values = pc.take(texts, pa.array(places.ravel()))
    structs = pa.StructArray.from_arrays([keys, values], fields=HEADER_FIELDS)
    offsets = pa.array(np.arange(0, 3 * count + 1, 3, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)
