"""What the tests of transforms share: a transform run to its end, and what the topics hold then.

Run as a program, it is a driver for a test to kill.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.settings import read_settings
from ottla.pipeline.stage import ClusterSettings, Context
from ottla.pipeline.transform.stage import Transform

QUERY_TIMEOUT_S = 240
READ_TIMEOUT_S = 60
ATTEMPTS_MAX = 5

Result = TypeVar("Result")


class Read(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    partition: int

    @property
    def origin(self) -> tuple[str, int, int]:
        place = (self.headers[f"origin.{name}"].decode() for name in ("topic", "partition", "offset"))
        topic, partition, offset = place
        return topic, int(partition), int(offset)


def transform_in(context: Context, name: str = "clean", **table: Any) -> Transform:
    """`source` is the setting `from`, which is a keyword in Python."""
    table["from"] = table.pop("source")
    return Transform(name, read_settings(Transform.Settings, table, f"[transforms.{name}]"), context)


def run_once(spark: SparkSession, transform: Transform) -> dict[str, Any]:
    """Returns the last progress. Retries retriable errors, as the runner does."""

    def run() -> dict[str, Any]:
        query = transform.start(spark, {"availableNow": True})
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
            return query.lastProgress or {}
        finally:
            query.stop()

    return retry_retriable_errors(run)


def retry_retriable_errors(run: Callable[[], Result]) -> Result:
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return run()
        except (PipelineError, StreamingQueryException) as error:
            if not summarize(error).is_retriable:
                raise
    return run()


def read_topic(bootstrap: str, topic: str) -> list[Read]:
    """Every committed record, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[Read] = []
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{topic} does not come to an end"
            partition = message.partition()
            assert partition is not None
            if (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(partition)
                continue
            headers: Any = dict(message.headers() or [])
            found.append(Read(message.key(), message.value(), headers, partition))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record.partition)


def drive(bootstrap: str, pipeline: str, folder: str, source: str, to: str, dead_letters: str) -> None:
    from ottla.pipeline.spark.session import spark_session

    spark = spark_session("dies", master="local[2,4]", conf={"spark.ui.enabled": "false"})
    context = Context(pipeline, ClusterSettings(bootstrap), Path(folder), "checkpoints")
    table = {"source": source, "to": to, "dead_letters": dead_letters, "function": "transforms.py:clean"}
    run_once(spark, transform_in(context, max_records_per_batch=2000, **table))


if __name__ == "__main__":
    drive(*sys.argv[1:])
