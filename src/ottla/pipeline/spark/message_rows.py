"""Messages of confluent-kafka as an Arrow batch."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from ottla.pipeline.spark.rows import HEADERS_TYPE, Extras, arrow_schema

# librdkafka's numbers for the kind of a timestamp, and Java's, which Spark shows
TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}


def rows_of(messages: Sequence[Message], topic: str, partition: int, extras: Extras) -> pa.RecordBatch:
    """The messages, all of one partition, as rows."""
    count = len(messages)
    times = [message.timestamp() for message in messages]
    arrays = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([time_ms * 1000 for _, time_ms in times], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([TIMESTAMP_TYPES.get(kind, -1) for kind, _ in times], pa.int32()),
    ]
    if extras.headers:
        arrays.append(pa.array([as_structs(message.headers()) for message in messages], HEADERS_TYPE))
    if extras.leader_epoch:
        arrays.append(pa.array([message.leader_epoch() for message in messages], pa.int32()))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(extras))


def as_structs(headers: Any) -> list[dict[str, Any]] | None:
    """Spark shows a record without headers as null."""
    return [{"key": key, "value": value} for key, value in headers] if headers else None
