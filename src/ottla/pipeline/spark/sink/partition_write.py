"""Writing exactly once: each Spark partition's rows and its marker in one transaction.

A batch that runs again finds the markers of the partitions that were written, and leaves them out. The transactional id
is the sink's and the partition's, so whoever comes later fences whoever was before.
"""

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
from ottla.pipeline.spark.sink.records import produce_arguments

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class Task(NamedTuple):
    """Which Spark partition, in which run of the query; `is_retry` where an earlier attempt may have written it."""

    partition: int
    run: str
    is_retry: bool


class PartitionWrite:
    """One task's work: the rows of one Spark partition of one batch."""

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
            return written_before(partition, marker)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return Written(partition, 0)
        held = self.producer()
        if not held.is_warm:
            marker = self.marker_topic().read([partition]).get(partition)
            self.check_late(held, marker)
            if is_written(self.attempt, marker):
                held.discard()
                return written_before(partition, marker)
        written = self.write(held, first, batches)
        release(held, self.attempt.batch)
        return written

    def check_late(self, held: PooledProducer, marker: Marker | None) -> None:
        """A commit may become visible only after the snapshot; the fence waits for it (KIP-98)."""
        late = {} if marker is None else {self.task.partition: marker}
        try:
            check_attempt(self.attempt, {**self.snapshot.markers, **late})
        except PipelineError:
            held.discard()
            raise

    def marker_topic(self) -> MarkerTopic:
        return MarkerTopic(self.options.client, self.attempt.sink_id)

    def producer(self) -> PooledProducer:
        # The time until the first row came is not the transaction's.
        self.began = time.monotonic()
        if self.task.partition >= self.snapshot.room:
            self.marker_topic().ensure(self.task.partition)
        batch = None if self.task.is_retry else self.attempt.batch
        try:
            return acquire(self.options, self.task.run, self.task.partition, batch)
        except KafkaException as error:
            raise self.explained(error.args[0]) from error

    def write(
        self, held: PooledProducer, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]
    ) -> Written:
        self.began = time.monotonic()
        try:
            held.producer.begin_transaction()
            rows = self.put(held, first)
            for batch in batches:
                rows += self.put(held, batch)
            marker = next_marker(self.attempt, self.snapshot.markers, rows)
            key = self.attempt.sink_id.encode()
            held.records.put([(held.marker_topic, marker.encode(), key, self.task.partition)])
            held.commit(self.seconds_left)
        except KafkaException as error:
            held.abandon()
            raise self.explained(error.args[0]) from error
        except PipelineError as error:
            failed = held.records.failed
            held.abandon()
            if failed.error is None:
                raise
            raise self.explained(failed.error, failed.where) from error
        except BaseException:
            held.abandon()
            raise
        return Written(self.task.partition, rows, time.monotonic() - self.began)

    def put(self, held: PooledProducer, batch: pa.RecordBatch) -> int:
        if self.seconds_left() <= 0:
            raise self.expired()
        options = self.options
        held.records.put(produce_arguments(batch, options.topic, keep_timestamps=options.keep_timestamps))
        return int(batch.num_rows)

    def seconds_left(self) -> float:
        return self.options.transaction_timeout_s - (time.monotonic() - self.began)

    def explained(self, error: KafkaError, where: str = "") -> PipelineError:
        sink = f"sink `{self.attempt.sink_id}`, Spark partition {self.task.partition}"
        if self.seconds_left() <= 0:
            return self.expired()
        if error.code() in FENCED:
            return PipelineError(
                f"Something newer writes to {sink}, so this query was shut out; nothing of its transaction stays.",
                "Let one query at a time use a sink id: stop the other, or give it an id of its own.",
            )
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return PipelineError(
                f"The cluster does not let a transaction of {sink} last {self.options.transaction_timeout_s:.0f} s.",
                "Give the option kafka.transaction.timeout.ms, at most the cluster's transaction.max.timeout.ms.",
            )
        return write_error(error, where or sink)

    def expired(self) -> PipelineError:
        return PipelineError(
            f"Batch {self.attempt.batch} of sink `{self.attempt.sink_id}`: Spark partition {self.task.partition} was"
            f" not done within the {self.options.transaction_timeout_s:.0f} s that its transaction may last, so"
            " nothing of it was written.",
            "Make the batches smaller (maxOffsetsPerTrigger), use more partitions, or raise"
            " kafka.transaction.timeout.ms together with the cluster's transaction.max.timeout.ms.",
        )


def written_before(partition: int, marker: Marker | None) -> Written:
    return Written(partition, marker.rows if marker is not None else 0)
