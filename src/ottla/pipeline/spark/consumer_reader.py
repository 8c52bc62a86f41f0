"""Reads a range of offsets of one partition through librdkafka, which has TLS and SASL. Runs in executors."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
)
from confluent_kafka import TopicPartition as KafkaPartition

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.clients import make_client
from ottla.pipeline.spark.data_loss import log_ends_before, position_after_loss
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.rows import HEADERS_TYPE, Extras, arrow_schema

_ROWS_FIRST, _ROWS_MAX = 500, 20_000
_BATCH_BYTES = 16 << 20
# consume() waits for as many as requested, which are never complete where offsets have gaps.
_WAIT_S = 0.1
# librdkafka does not always report that a topic is gone: after this silence the reader checks.
CHECK_AFTER_S = 5.0

# By default librdkafka waits a second when its queue is full, which it is with 100,000 messages.
_CONSUMER = {
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 1_000_000,
    "fetch.message.max.bytes": 8 << 20,
}

_LOST = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
# librdkafka's numbers for the timestamp type: Java's, which Spark shows
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}


def _consumer_config(options: ReadOptions) -> dict[str, Any]:
    return {
        # librdkafka requires a group, but partitions are assigned and nothing is committed.
        "group.id": "ottla-spark",
        **_CONSUMER,
        **options.client,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # Any other value would skip lost records silently.
        "auto.offset.reset": "error",
    }


def consume_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """As `fetch_reader.fetch_range`: every record once, in order, up to the position where the range ends."""
    consumer = make_client(Consumer, _consumer_config(options))
    position, count, last_record_s, has_checked = wanted.start, _ROWS_FIRST, time.monotonic(), False
    is_at_end = False
    try:
        consumer.assign([KafkaPartition(*wanted.at, position)])
        while position < wanted.end:
            messages = consumer.consume(min(count, wanted.end - position), timeout=_WAIT_S)
            records, position, is_lost, has_ended = _consumed(messages, wanted, position)
            # librdkafka reports the end of a log once, not at every attempt.
            is_at_end = has_ended or (is_at_end and not records)
            silent_s = time.monotonic() - last_record_s
            if records:
                rows = _rows_of(records, wanted.topic, wanted.partition, options.extras)
                count = min(2 * count, _ROWS_MAX, max(1, _BATCH_BYTES * len(records) // max(1, rows.nbytes)))
                yield rows
                last_record_s, has_checked = time.monotonic(), False
            elif silent_s > options.poll_timeout_s:
                if is_at_end and log_ends_before(options, wanted, position):
                    return
                raise RetriableError(
                    f"{wanted.at} sent nothing for {options.poll_timeout_s:.0f} s at offset {position}.",
                    "Check that the cluster runs.",
                )
            elif silent_s > CHECK_AFTER_S and not has_checked:
                is_lost = has_checked = True
            if is_lost and position < wanted.end:
                position = position_after_loss(options, wanted, position)
                consumer.assign([KafkaPartition(*wanted.at, position)])
    finally:
        consumer.close()


class _Consumed(NamedTuple):
    """Records of the range, and the position after them. The log does not have it (`is_lost`) or ends there."""

    records: list[Message]
    position: int
    is_lost: bool = False
    has_ended: bool = False


def _consumed(messages: Sequence[Message], wanted: OffsetRange, position: int) -> _Consumed:
    records, has_ended = [], False
    for message in messages:
        error = message.error()
        if error is None:
            offset = int(message.offset() or 0)
            if wanted.start <= offset < wanted.end:
                records.append(message)
            position, has_ended = max(position, offset + 1), False
        elif error.code() == KafkaError._PARTITION_EOF:
            position, has_ended = max(position, int(message.offset() or 0)), True
        elif error.code() in _LOST:
            return _Consumed(records, position, is_lost=True)
        else:
            raise PipelineError(
                f"{wanted.at} cannot be read at offset {position}: {error.str()}.",
                "Check the broker's log.",
            )
    return _Consumed(records, position, has_ended=has_ended)


def _rows_of(messages: Sequence[Message], topic: str, partition: int, extras: Extras) -> pa.RecordBatch:
    """Messages of one partition as an Arrow batch."""
    count = len(messages)
    times = [message.timestamp() for message in messages]
    arrays = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([time_ms * 1000 for _, time_ms in times], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([_TIMESTAMP_TYPES.get(kind, -1) for kind, _ in times], pa.int32()),
    ]
    if extras.headers:
        arrays.append(pa.array([_as_structs(message.headers()) for message in messages], HEADERS_TYPE))
    if extras.leader_epoch:
        arrays.append(pa.array([message.leader_epoch() for message in messages], pa.int32()))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(extras))


def _as_structs(headers: Any) -> list[dict[str, Any]] | None:
    """Spark shows a record without headers as null."""
    return [{"key": key, "value": value} for key, value in headers] if headers else None
