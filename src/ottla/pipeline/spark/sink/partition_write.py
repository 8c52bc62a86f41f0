"""Writes exactly once: the rows of a Spark partition and its marker, in one transaction.

A batch that runs again finds the markers of the partitions that were written, and skips them. The transactional id is
made from the sink's id and the partition, so a later attempt fences an earlier one.
"""

import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.marker_topic import MarkerTopic
from ottla.pipeline.spark.sink.markers import (
    Attempt,
    Marker,
    Snapshot,
    Written,
    check_attempt,
    is_written,
    next_marker,
)
from ottla.pipeline.spark.sink.options import SinkOptions
from ottla.pipeline.spark.sink.producer import write_error
from ottla.pipeline.spark.sink.producer_pool import PooledProducer, acquire, release
from ottla.pipeline.spark.sink.records import produce_arguments, record_bytes

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class Task(NamedTuple):
    """A Spark partition in a run of the query. `is_retry` means that an earlier attempt may have written it."""

    partition: int
    run: str
    is_retry: bool


class PartitionWrite:
    """The work of one task: writes the rows of one Spark partition of one batch."""

    def __init__(self, options: SinkOptions, snapshot: Snapshot, attempt: Attempt, task: Task) -> None:
        self.options = options
        self.snapshot = snapshot
        self.attempt = attempt
        self.task = task
        self.began = time.monotonic()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        check_attempt(self.attempt, self.snapshot.markers)
        partition = self.task.partition
        marker = self.snapshot.markers.get(partition)
        if is_written(self.attempt, marker):
            return _written_before(partition, marker)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return Written(partition, 0)
        pooled = self._producer()
        if not pooled.is_warm:
            marker = self._marker_topic().read([partition]).get(partition)
            self._check_again(pooled, marker)
            if is_written(self.attempt, marker):
                pooled.discard()
                return _written_before(partition, marker)
        written = self._write(pooled, itertools.chain([first], batches))
        release(pooled, self.attempt.batch)
        return written

    def mark(self) -> None:
        """Writes a marker without rows."""
        pooled = self._producer()
        self._write(pooled, iter(()))
        pooled.discard()

    def _check_again(self, pooled: PooledProducer, marker: Marker | None) -> None:
        """Checks again: a commit may become visible only after the snapshot. Fencing waited for it (KIP-98)."""
        late = {} if marker is None else {self.task.partition: marker}
        try:
            check_attempt(self.attempt, {**self.snapshot.markers, **late})
        except PipelineError:
            pooled.discard()
            raise

    def _marker_topic(self) -> MarkerTopic:
        return MarkerTopic(self.options.client, self.attempt.sink_id)

    def _producer(self) -> PooledProducer:
        # The transaction's time does not include the wait for the first row.
        self.began = time.monotonic()
        if self.task.partition >= self.snapshot.room:
            self._marker_topic().ensure(self.task.partition)
        batch = None if self.task.is_retry else self.attempt.batch
        try:
            return acquire(self.options, self.task.run, self.task.partition, batch)
        except KafkaException as error:
            raise self._explain(error.args[0]) from error

    def _write(self, pooled: PooledProducer, batches: Iterator[pa.RecordBatch]) -> Written:
        self.began = time.monotonic()
        try:
            pooled.producer.begin_transaction()
            rows = size_bytes = 0
            for batch in batches:
                self._put(pooled, batch)
                rows += batch.num_rows
                size_bytes += 0 if self.options.written_bytes is None else record_bytes(batch)
            marker = next_marker(self.attempt, self.snapshot.markers, rows, size_bytes)
            key = self.attempt.sink_id.encode()
            pooled.records.put([(pooled.marker_topic, marker.encode(), key, self.task.partition)])
            pooled.commit(self.seconds_left)
        except KafkaException as error:
            pooled.abort()
            raise self._explain(error.args[0]) from error
        except PipelineError as error:
            cause = pooled.records.first_error
            pooled.abort()
            if cause.error is None:
                raise
            raise self._explain(cause.error, cause.where) from error
        except BaseException:
            pooled.abort()
            raise
        return Written(self.task.partition, rows, time.monotonic() - self.began, size_bytes)

    def _put(self, pooled: PooledProducer, batch: pa.RecordBatch) -> None:
        if self.seconds_left() <= 0:
            raise self._timed_out()
        options = self.options
        pooled.records.put(produce_arguments(batch, options.topic, keep_timestamps=options.keep_timestamps))

    def seconds_left(self) -> float:
        return self.options.transaction_timeout_s - (time.monotonic() - self.began)

    def _explain(self, error: KafkaError, where: str = "") -> PipelineError:
        sink = f"sink `{self.attempt.sink_id}`, Spark partition {self.task.partition}"
        if self.seconds_left() <= 0:
            return self._timed_out()
        if error.code() in _FENCED:
            return PipelineError(
                f"A newer query writes to {sink} and fenced this one, whose transaction is aborted.",
                "Let only one query at a time use a sink id: stop the other, or give it an id of its own.",
            )
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return PipelineError(
                f"The cluster does not let a transaction of {sink} last {self.options.transaction_timeout_s:.0f} s.",
                "Set the option kafka.transaction.timeout.ms, at most to the cluster's transaction.max.timeout.ms.",
            )
        return write_error(error, where or sink)

    def _timed_out(self) -> PipelineError:
        return PipelineError(
            f"Batch {self.attempt.batch} of sink `{self.attempt.sink_id}`: Spark partition {self.task.partition} took"
            f" longer than the {self.options.transaction_timeout_s:.0f} s that its transaction may last, so nothing of"
            " it was written.",
            "Make the batches smaller (maxOffsetsPerTrigger), use more partitions, or raise"
            " kafka.transaction.timeout.ms together with the cluster's transaction.max.timeout.ms.",
        )


def _written_before(partition: int, marker: Marker | None) -> Written:
    return (
        Written(partition, 0)
        if marker is None
        else Written(partition, marker.rows, size_bytes=marker.size_bytes)
    )
