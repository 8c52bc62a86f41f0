"""The exactly-once writers: each task writes its partition, and the driver verifies that all are written."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.sink.marker_topic import POLL_S, TIMEOUT_S, MarkerTopic
from ottla.pipeline.spark.sink.markers import (
    BATCH_QUERY,
    Attempt,
    Markers,
    Snapshot,
    Written,
    first_attempt,
    timeout_warning,
    unmarked_partitions,
)
from ottla.pipeline.spark.sink.options import SinkOptions
from ottla.pipeline.spark.sink.partition_write import PartitionWrite, Task
from ottla.pipeline.spark.worker_process import keep_imports
from ottla.pipeline.written_bytes import WrittenBytes

_log = logging.getLogger(__name__)

# Spark's local properties of the job of a micro-batch
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


@dataclass
class Committed(WriterCommitMessage):
    query: str
    written: Written


def _read_snapshot(options: SinkOptions) -> Snapshot:
    return MarkerTopic(options.client, str(options.sink_id)).snapshot()


def _write_partition(
    options: SinkOptions, snapshot: Snapshot, query: str, batch: int, rows: Iterator[pa.RecordBatch]
) -> Committed:
    keep_imports()
    context = TaskContext.get()
    assert context is not None
    attempt = Attempt(str(options.sink_id), query, batch, options.plan, options.reset, options.accept_plan)
    run = context.getLocalProperty(_RUN_ID) or ""
    # A batch write does not know of an earlier one that failed; a stream does, by its run.
    is_retry = query == BATCH_QUERY or context.attemptNumber() > 0
    task = Task(context.partitionId(), run, is_retry)
    return Committed(query, PartitionWrite(options, snapshot, attempt, task).run(rows))


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [message.written for message in messages if isinstance(message, Committed)]


def _wait_for_markers(
    options: SinkOptions, query: str, batch: int, written: list[Written], markers: Markers
) -> list[int]:
    """Waits until all markers are visible. Returns the Spark partitions whose markers are still missing.

    The coordinator responds when it has decided a commit, and writes to the partitions after that (KIP-98).
    """
    deadline = time.monotonic() + TIMEOUT_S
    while (missing := unmarked_partitions(query, batch, written, markers)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        markers = {**markers, **MarkerTopic(options.client, str(options.sink_id)).read(missing)}
    return missing


def verify_markers(
    options: SinkOptions, batch: int, messages: list[WriterCommitMessage | None], markers: Markers
) -> None:
    """Runs on the driver, before Spark commits the batch. Raises RetriableError if markers are missing."""
    written = _written(messages)
    query = next((message.query for message in messages if isinstance(message, Committed)), "")
    missing = _wait_for_markers(options, query, batch, written, markers)
    if missing:
        raise RetriableError(
            f"Batch {batch} of sink `{options.sink_id}`: the markers of Spark partitions {missing} are not in their"
            " topic, though their tasks succeeded.",
            "The batch runs again. If this happens again, check that nobody deletes records of that topic.",
        )
    warning = timeout_warning(str(options.sink_id), batch, written, options.transaction_timeout_s)
    if warning is not None:
        _log.warning(warning)


def mark_first_batch(
    options: SinkOptions, batch: int, messages: list[WriterCommitMessage | None], snapshot: Snapshot
) -> None:
    """Runs on the driver, before Spark commits the first batch: if it had no rows, writes a marker for it."""
    attempt = first_attempt(str(options.sink_id), batch, _written(messages), snapshot.markers)
    if attempt is None:
        return
    task = Task(partition=0, run="", is_retry=True)
    PartitionWrite(options, snapshot, attempt, task).mark()
    marked = [Committed(attempt.query, Written(task.partition, rows=1))]
    verify_markers(options, batch, list(marked), snapshot.markers)


def count_bytes(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Runs on the driver, once for each batch."""
    if options.written_bytes is not None:
        WrittenBytes(Path(options.written_bytes)).add(sum(task.size_bytes for task in _written(messages)))


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Created on the driver for each batch and again for its commit: both need the markers at that moment."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.snapshot = _read_snapshot(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise PipelineError(
                "Spark does not say to which query and batch a task belongs.",
                "Use a query with micro-batches: other modes cannot write exactly once.",
            )
        return _write_partition(self.options, self.snapshot, query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        verify_markers(self.options, batchId, messages, self.snapshot.markers)
        mark_first_batch(self.options, batchId, messages, self.snapshot)
        count_bytes(self.options, messages)


class ExactlyOnceBatchWriter(DataSourceArrowWriter):
    """Created once on the driver, and sent to the tasks and to the commit."""

    def __init__(self, options: SinkOptions, batch: int) -> None:
        self.options = options
        self.batch = batch
        self.snapshot = _read_snapshot(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        return _write_partition(self.options, self.snapshot, BATCH_QUERY, self.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        verify_markers(self.options, self.batch, messages, _read_snapshot(self.options).markers)
        count_bytes(self.options, messages)
