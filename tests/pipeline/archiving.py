"""What the tests of the archive share: records of every kind in a topic, and an archive run to the end."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from ottla.pipeline.archive.settings import ArchiveSettings
from ottla.pipeline.archive.stage import ArchiveSink
from ottla.pipeline.stage import Context

HOUR_MS = 3_600_000
# 2026-01-31T22:30Z: two hours later it is another day.
BEGIN_MS = 1_769_898_600_000
QUERY_TIMEOUT_S = 120


def make_topic(bootstrap: str, topic: str, partitions: int = 2, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The records of these tests are older than a topic keeps them by default.
    settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def produce(bootstrap: str, topic: str, records: Iterable[dict[str, Any]], **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def some_records(
    count: int, *, partitions: int = 2, begin_ms: int = BEGIN_MS, step_ms: int = 60_000
) -> list[dict[str, Any]]:
    """With and without keys, values and headers, bytes that are no text, a minute apart."""
    return [
        {
            "key": None if number % 5 == 0 else f"key-{number % 7}".encode(),
            "value": None if number % 11 == 0 else b"\xff\x00" + str(number).encode(),
            "headers": [("n", str(number).encode()), ("n", None)] if number % 3 == 0 else None,
            "partition": number % partitions,
            "timestamp": begin_ms + number * step_ms,
        }
        for number in range(count)
    ]


def sink(context: Context, topic: str, name: str = "archive", **settings: Any) -> ArchiveSink:
    return ArchiveSink(name, ArchiveSettings((topic,), "archive", **settings), context)


def archive_all(spark: SparkSession, stage: Any) -> None:
    """Everything that is there now. Raises what the query ended with."""
    query = stage.start(spark, {"availableNow": True})
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        query.stop()


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("archive/*/date=*/hour=*/*.parquet"))
