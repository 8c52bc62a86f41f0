"""Writes at least once, as Spark's own sink does: a task that failed writes all of its rows again."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipeline.spark.sink.options import SinkOptions
from ottla.pipeline.spark.sink.producer import RecordProducer, describe_target, write_error
from ottla.pipeline.spark.sink.records import produce_arguments
from ottla.pipeline.spark.worker_process import keep_imports


@dataclass
class Flushed(WriterCommitMessage):
    rows: int


def _write_all(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Flushed:
    """Returns when every record is acknowledged by all in-sync replicas."""
    keep_imports()
    rows = 0
    records: RecordProducer | None = None
    try:
        for batch in batches:
            # A task without rows sends no requests.
            records = records or RecordProducer(options.client)
            records.put(produce_arguments(batch, options.topic, keep_timestamps=options.keep_timestamps))
            rows += batch.num_rows
        if records is not None:
            records.flush()
    except KafkaException as error:
        raise write_error(error.args[0], describe_target(options.topic)) from error
    finally:
        if records is not None:
            records.discard()
    return Flushed(rows)


class AtLeastOnceBatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Flushed:
        return _write_all(self.options, iterator)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Flushed:
        return _write_all(self.options, iterator)
