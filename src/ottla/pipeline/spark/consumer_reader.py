"""Reads a range of offsets of one partition through librdkafka, which knows TLS and SASL; runs in executors."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.spark.clients import make_client
from ottla.pipeline.spark.data_loss import position_after_loss, report_loss
from ottla.pipeline.spark.message_rows import rows_of
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions

ROWS_FIRST, ROWS_MAX = 500, 20_000
BATCH_BYTES = 16 << 20
# consume() waits for as many as it was asked for: where offsets have holes, that is too many.
WAIT_S = 0.1
# librdkafka does not always tell that a topic is gone: who hears nothing for so long looks whether it is.
CHECK_AFTER_S = 5.0

# librdkafka's defaults wait a second when its queue is full, and its queue is full with 100,000 messages.
CONSUMER = {"fetch.queue.backoff.ms": 2, "queued.min.messages": 1_000_000, "fetch.message.max.bytes": 8 << 20}

LOST = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


def consumer_config(options: ReadOptions) -> dict[str, Any]:
    return {
        # A group is needed by name alone: partitions are assigned and nothing is committed.
        "group.id": "ottla-spark",
        **CONSUMER,
        **options.client,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # Any other would pass over what is lost without a word.
        "auto.offset.reset": "error",
    }


def consume_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """As `fetching.fetch_range`: every record once, in order, up to the position where the range ends."""
    consumer = make_client(Consumer, consumer_config(options))
    position, count, heard, has_looked = wanted.start, ROWS_FIRST, time.monotonic(), False
    try:
        consumer.assign([KafkaPartition(*wanted.at, position)])
        while position < wanted.end:
            messages = consumer.consume(min(count, wanted.end - position), timeout=WAIT_S)
            records, position, is_lost = records_of(messages, wanted, position, options)
            silent_s = time.monotonic() - heard
            if records:
                rows = rows_of(records, wanted.topic, wanted.partition, options.extras)
                count = min(2 * count, ROWS_MAX, max(1, BATCH_BYTES * len(records) // max(1, rows.nbytes)))
                yield rows
                heard, has_looked = time.monotonic(), False
            elif silent_s > options.poll_timeout_s:
                raise PassingError(
                    f"{wanted.at} gave nothing for {options.poll_timeout_s:.0f} s at offset {position}.",
                    "Check that the cluster runs.",
                )
            elif silent_s > CHECK_AFTER_S and not has_looked:
                is_lost = has_looked = True
            if is_lost and position < wanted.end:
                position = position_after_loss(options, wanted, position)
                consumer.assign([KafkaPartition(*wanted.at, position)])
    finally:
        consumer.close()


def records_of(
    messages: Sequence[Message], wanted: OffsetRange, position: int, options: ReadOptions
) -> tuple[list[Message], int, bool]:
    """The records of the range among the messages, the position after them, and whether the log does not have that."""
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            offset = int(message.offset() or 0)
            if wanted.start <= offset < wanted.end:
                records.append(message)
            position = max(position, offset + 1)
        elif error.code() == KafkaError._PARTITION_EOF:
            # The end of a log may lie before the range for a moment, when its leader has changed.
            position = max(position, int(message.offset() or 0))
            if position < wanted.end and not options.fail_on_data_loss:
                lost = f"{position} to {wanted.end - 1} cannot be read"
                report_loss(f"{wanted.at} ends at offset {position}: {lost}.", fail_on_data_loss=False)
                position = wanted.end
        elif error.code() in LOST:
            return records, position, True
        else:
            raise PipelineError(
                f"{wanted.at} cannot be read at offset {position}: {error.str()}.",
                "The broker's log says more.",
            )
    return records, position, False
