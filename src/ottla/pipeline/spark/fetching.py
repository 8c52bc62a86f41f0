"""Reads a range of offsets of one partition as Arrow batches; runs in executors."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.spark.clients import make_client
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.rows import arrow_batch

BATCH_ROWS = 10_000
WAIT_S = 1.0

# Over librdkafka's defaults, which wait a second for more when a queue of theirs is full.
CONSUMER = {
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 1_000_000,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
}


def consumer_config(options: ReadOptions) -> dict[str, Any]:
    return {
        # A group is needed by name alone: partitions are assigned and nothing is committed.
        "group.id": "ottla-spark",
        **CONSUMER,
        **options.client,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error" if options.fail_on_data_loss else "earliest",
    }


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Every record of the range once, in order. It ends by position: offsets have holes where a log was
    compacted, a transaction was aborted or ended."""
    consumer = make_client(Consumer, consumer_config(options))
    try:
        consumer.assign([KafkaPartition(wanted.topic, wanted.partition, wanted.start)])
        is_done = False
        heard = time.monotonic()
        while not is_done:
            messages = consumer.consume(BATCH_ROWS, timeout=WAIT_S)
            rows, is_done = records_of(messages, wanted, options)
            if rows:
                yield arrow_batch(rows, wanted.topic, wanted.partition, options.include_headers)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > options.poll_timeout_s:
                raise PassingError(
                    f"{wanted.at} gave nothing for {options.poll_timeout_s:.0f} s, wanted are offsets up to {wanted.end}.",
                    "Check that the cluster runs.",
                )
    finally:
        consumer.close()


def records_of(
    messages: list[Message], wanted: OffsetRange, options: ReadOptions
) -> tuple[list[Message], bool]:
    """Those of the range, and whether the range is at its end."""
    rows = []
    for message in messages:
        error = message.error()
        if error is None:
            if message.offset() >= wanted.end:
                return rows, True
            if message.offset() >= wanted.start:
                rows.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= wanted.end or not options.fail_on_data_loss:
                return rows, True
        else:
            raise PipelineError(f"{wanted.at} cannot be read from offset {wanted.start}: {error.str()}.", "")
    return rows, bool(rows) and rows[-1].offset() + 1 >= wanted.end
