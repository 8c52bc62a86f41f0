"""Pieces of files as rows in Arrow columns: key, value, and headers that say where a record was."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile
from ottla.pipeline.ingest.spooldir.pieces import read_piece
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat, last_record_end, split_records
from ottla.pipeline.spark.rows import HEADERS, HEADERS_TYPE

COLUMNS = StructType(
    [StructField("key", BinaryType()), StructField("value", BinaryType()), StructField("headers", HEADERS)]
)
_ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])
_HEADER_FIELDS = list(HEADERS_TYPE.value_type)
_HEADER_KEYS = pa.array(["file", "line", "position"])

# About so many bytes of a file are in a batch of rows: 10,000 lines of 100 bytes, as in Spark's own Arrow batches.
ROWS_BYTES = 1_000_000


def rows_of(pieces: Iterable[tuple[TakenFile, Piece]]) -> Iterator[pa.RecordBatch]:
    for file, piece in pieces:
        data = read_piece(file, piece)
        name = file.name.encode("utf-8", "surrogateescape")
        position, line = piece.start, piece.line
        for part in _parts(data, file.record_format.delimiter):
            batch = _to_batch(part, file.record_format, name, line, position)
            position += len(part)
            line += batch.num_rows
            if batch.num_rows:
                yield batch


def _parts(data: bytes, delimiter: bytes) -> Iterator[bytes]:
    """The data in parts of whole records, of about ROWS_BYTES unless a record is longer."""
    at, size = 0, ROWS_BYTES
    while at < len(data):
        is_rest = not delimiter or at + size >= len(data)
        part = data[at:] if is_rest else data[at : at + size]
        end = len(part) if is_rest else last_record_end(part, delimiter)[1]
        if end:
            yield part if end == len(part) else part[:end]
            at, size = at + end, ROWS_BYTES
        else:
            size *= 2


def _to_batch(
    data: bytes, record_format: RecordFormat, name: bytes, line: int, position: int
) -> pa.RecordBatch:
    records = split_records(data, record_format)
    count = len(records)
    values = pa.array(records, pa.binary())
    key = pa.repeat(pa.scalar(name if record_format.keyed_by_file else None, pa.binary()), count)
    headers = _headers(name, line, _starts(data, record_format, records) + position)
    return pa.RecordBatch.from_arrays([key, values, headers], schema=_ARROW)


def _starts(
    data: bytes, record_format: RecordFormat, records: list[bytes]
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Where each record begins in the data."""
    whole = records
    if record_format.cuts_carriage_return:
        whole = split_records(data, record_format._replace(cuts_carriage_return=False))
    starts = np.zeros(len(whole), np.int64)
    lengths = np.fromiter(map(len, whole[:-1]), np.int64, max(0, len(whole) - 1))
    np.cumsum(lengths + len(record_format.delimiter), out=starts[1:])
    return starts


def _headers(name: bytes, line: int, positions: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """For each record its file, line and position, as text."""
    count = len(positions)
    lines = pa.array(np.arange(line, line + count)).cast(pa.string()).cast(pa.binary())
    texts = pa.concat_arrays(
        [pa.array([name], pa.binary()), lines, pa.array(positions).cast(pa.string()).cast(pa.binary())]
    )
    indices = np.zeros((count, 3), np.int64)
    indices[:, 1] = np.arange(1, 1 + count)
    indices[:, 2] = indices[:, 1] + count
    keys = pc.take(_HEADER_KEYS, pa.array(np.tile(np.arange(3), count)))
    values = pc.take(texts, pa.array(indices.ravel()))
    structs = pa.StructArray.from_arrays([keys, values], fields=_HEADER_FIELDS)
    offsets = pa.array(np.arange(0, 3 * count + 1, 3, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)
