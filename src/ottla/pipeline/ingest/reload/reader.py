"""Reads archived records from Parquet files in an executor, as Arrow batches."""

import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.pipeline.archive.filesystem import open_filesystem
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.reload.plan import Task, Times
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.rows import ARROW_WITH_HEADERS

_BATCH_ROWS = 10_000
_PLACES = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
# as a producer without timestamps sends it
_NO_TIMESTAMP_MS = -1


def read_task(path: str, options: Mapping[str, str], task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a range, sorted by offset, as a producer can send them."""
    for rows in _read_groups(path, options, task):
        yield from _in_batches(_without_missing_times(rows, task.wanted))


def read_archived(path: str, options: Mapping[str, str], task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a range, sorted by offset, as the topic had them."""
    for rows in _read_groups(path, options, task):
        yield from _in_batches(rows)


def _read_groups(path: str, options: Mapping[str, str], task: Task) -> Iterator[pa.Table]:
    system, root = open_filesystem(path, options)
    condition = _condition(task.wanted, task.times)
    for group in task.groups:
        rows = pa.concat_tables(
            [_read_file(system, f"{root}/{file}", ARROW_WITH_HEADERS, condition) for file in group]
        )
        yield rows.sort_by("offset") if len(group) > 1 else rows


def _in_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def read_firsts(path: str, options: Mapping[str, str], file: str, time_ms: int) -> dict[int, int]:
    """Of each partition in a file the first offset whose record has this time or a later one."""
    system, root = open_filesystem(path, options)
    is_late = pc.field("timestamp") >= _arrow_time(time_ms)
    rows = _read_file(system, f"{root}/{file}", _PLACES, is_late)
    firsts = rows.group_by("partition").aggregate([("offset", "min")])
    return dict(zip(firsts["partition"].to_pylist(), firsts["offset_min"].to_pylist(), strict=True))


def _without_missing_times(rows: pa.Table, wanted: OffsetRange) -> pa.Table:
    """Makes the timestamp of records that have none null: the producer sets the time, because it cannot send -1."""
    column = rows["timestamp"]
    is_missing = pc.equal(column.cast(pa.int64()), _NO_TIMESTAMP_MS * 1000)
    count = pc.sum(is_missing).as_py()
    if not count:
        return rows
    warnings.warn(
        f"{count} archived records of {wanted.at}, offsets {wanted.start} to {wanted.end - 1}, have no timestamp: they "
        "get the time of loading.",
        stacklevel=2,
    )
    times = pc.if_else(is_missing, pa.scalar(None, column.type), column)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", times)


def _condition(wanted: OffsetRange, times: Times) -> Any:
    """An expression over columns, so that Parquet skips row groups that have no wanted rows."""
    offset = pc.field("offset")
    condition = (pc.field("partition") == wanted.partition) & (offset >= wanted.start) & (offset < wanted.end)
    if times.from_ms is not None:
        condition &= pc.field("timestamp") >= _arrow_time(times.from_ms)
    if times.to_ms is not None:
        condition &= pc.field("timestamp") < _arrow_time(times.to_ms)
    return condition


def _arrow_time(time_ms: int) -> pa.Scalar:
    return pa.scalar(datetime.fromtimestamp(time_ms / 1000, UTC), pa.timestamp("us", tz="UTC"))


def _read_file(system: Any, where: str, schema: pa.Schema, condition: Any) -> pa.Table:
    try:
        # date=... and hour=... of the path are not columns of the records.
        rows = pq.read_table(
            where, filesystem=system, columns=schema.names, filters=condition, partitioning=None
        )
        return rows.cast(schema)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(
            f"The archive's file {where} cannot be read: {error}.",
            "Restore it from a copy, then start again: loading continues where it stopped. `ottla pipeline verify` "
            "names every such file.",
        ) from error
