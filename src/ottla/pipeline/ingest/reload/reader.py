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
# as a producer without timestamps sends it
_NO_TIMESTAMP_MS = -1


def read_task(path: str, options: Mapping[str, str], task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a range, sorted by offset."""
    system, root = open_filesystem(path, options)
    condition = _condition(task.wanted, task.times)
    for group in task.groups:
        rows = pa.concat_tables([_read_file(system, root, file, condition) for file in group])
        if len(group) > 1:
            rows = rows.sort_by("offset")
        rows = _without_missing_times(rows, task.wanted)
        yield from rows.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


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


def _read_file(system: Any, root: str, file: str, condition: Any) -> pa.Table:
    where = f"{root}/{file}"
    try:
        # date=... and hour=... of the path are not columns of the records.
        rows = pq.read_table(
            where, filesystem=system, columns=ARROW_WITH_HEADERS.names, filters=condition, partitioning=None
        )
        return rows.cast(ARROW_WITH_HEADERS)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(
            f"The archive's file {where} cannot be read: {error}.",
            "Restore it from a copy, then start again: loading continues where it stopped. `ottla pipeline verify` "
            "names every such file.",
        ) from error
