"""Reads archived records out of Parquet files in an executor, as Arrow batches."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.reload.filesystem import open_filesystem
from ottla.pipeline.ingest.reload.plan import Times
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.rows import ARROW_WITH_HEADERS

if TYPE_CHECKING:
    from ottla.pipeline.ingest.reload.source import Task

BATCH_ROWS = 10_000


def read_task(path: str, options: Mapping[str, str], task: "Task") -> Iterator[pa.RecordBatch]:
    """The records of a range in the order of their offsets."""
    system, root = open_filesystem(path, options)
    wanted = condition(task.wanted, task.times)
    for run in task.runs:
        tables = [read_file(system, root, file, wanted) for file in run]
        rows = pa.concat_tables(tables)
        if len(run) > 1:
            rows = rows.sort_by("offset")
        yield from rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def condition(wanted: OffsetRange, times: Times) -> Any:
    """In columns, so that Parquet passes over what lies outside."""
    offset = pc.field("offset")
    chosen = (pc.field("partition") == wanted.partition) & (offset >= wanted.start) & (offset < wanted.end)
    if times.from_ms is not None:
        chosen &= pc.field("timestamp") >= moment(times.from_ms)
    if times.to_ms is not None:
        chosen &= pc.field("timestamp") < moment(times.to_ms)
    return chosen


def moment(time_ms: int) -> pa.Scalar:
    return pa.scalar(datetime.fromtimestamp(time_ms / 1000, UTC), pa.timestamp("us", tz="UTC"))


def read_file(system: Any, root: str, file: str, wanted: Any) -> pa.Table:
    where = f"{root}/{file}"
    try:
        # The path's own date=... and hour=... are no columns of the records.
        rows = pq.read_table(
            where, filesystem=system, columns=ARROW_WITH_HEADERS.names, filters=wanted, partitioning=None
        )
        return rows.cast(ARROW_WITH_HEADERS)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(
            f"The archive's file {where} cannot be read: {error}.",
            "Put it back from a copy, then start again: loading goes on where it stopped. `ottla pipeline verify` "
            "names every such file.",
        ) from error
