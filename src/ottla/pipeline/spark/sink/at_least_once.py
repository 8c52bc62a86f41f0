"""Writing at least once, as Spark's own sink does: what a task wrote before it failed is written again with it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipeline.spark.sink.options import SinkOptions
from ottla.pipeline.spark.sink.producer import Records, not_written, place
from ottla.pipeline.spark.sink.records import produce_arguments


@dataclass
class Flushed(WriterCommitMessage):
    rows: int


def write_all(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Flushed:
    """Returns when every record is acknowledged by all in-sync replicas."""
    rows = 0
    records: Records | None = None
    try:
        for batch in batches:
            # A task without rows asks nothing of the cluster.
            records = records or Records(options.client)
            records.put(produce_arguments(batch, options.topic, keep_timestamps=options.keep_timestamps))
            rows += batch.num_rows
        if records is not None:
            records.flush()
    except KafkaException as error:
        raise not_written(error.args[0], place(options.topic)) from error
    finally:
        if records is not None:
            records.discard()
    return Flushed(rows)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Flushed:
        return write_all(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Flushed:
        return write_all(self.options, iterator)
