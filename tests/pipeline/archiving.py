"""What the tests of the archive share: records of every kind in a topic, and an archive run to the end."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from ottla.pipeline.archive.settings import ArchiveSettings
from ottla.pipeline.archive.stage import ArchiveSink
from ottla.pipeline.ingest.reload.settings import ReloadSettings
from ottla.pipeline.ingest.reload.stage import ArchiveSource
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.stage import ClusterSettings, Context

MINUTE_MS = 60_000
# 2026-01-31T22:30Z: two hours later it is another day.
BEGIN_MS = 1_769_898_600_000
# When all hours of up to 240 records are over, and closed
END_OF_RECORDS_MS = BEGIN_MS + 8 * 60 * MINUTE_MS
QUERY_TIMEOUT_S = 180
ATTEMPTS_MAX = 5


def make_topic(bootstrap: str, topic: str, partitions: int = 2, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The records of these tests are older than a topic keeps them by default.
    settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def produce(bootstrap: str, topic: str, records: Iterable[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def some_records(count: int, *, partitions: int = 2, step_ms: int = MINUTE_MS) -> list[dict[str, Any]]:
    """With and without keys, values and headers, bytes that are no text, a minute apart."""
    return [
        {
            "key": None if number % 5 == 0 else f"key-{number % 7}".encode(),
            "value": None if number % 11 == 0 else b"\xff\x00" + str(number).encode(),
            "headers": [("n", str(number).encode()), ("n", None)] if number % 3 == 0 else None,
            "partition": number % partitions,
            "timestamp": BEGIN_MS + number * step_ms,
        }
        for number in range(count)
    ]


def sink(context: Context, topic: str, path: str = "archive", **settings: Any) -> ArchiveSink:
    return ArchiveSink("archive", ArchiveSettings((topic,), path, **settings), context)


def reload_of(context: Context, name: str, path: str = "archive", **settings: Any) -> ArchiveSource:
    return ArchiveSource(name, ReloadSettings(path, **settings), context)


def run_all(spark: SparkSession, stage: Any) -> None:
    """Processes all available records. Retries retriable errors, and raises others."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        query = stage.start(spark, {"availableNow": True})
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
            return
        except Exception as error:
            if attempt == ATTEMPTS_MAX or not summarize(error).is_retriable:
                raise
        finally:
            query.stop()


@contextmanager
def error_with(*parts: str) -> Iterator[None]:
    """The block must raise an error whose summary has these parts."""
    try:
        yield
    except Exception as error:
        sentence = summarize(error).sentence
        assert all(part in sentence for part in parts), sentence
    else:
        raise AssertionError("there was no error")


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("archive/*/date=*/hour=*/*.parquet"))


def records_of(spark: SparkSession, cluster: ClusterSettings, topic: str) -> list[tuple[Any, ...]]:
    """The topic's committed records by partition and offset, each with all that a reload keeps."""
    reader = spark.read.format("ottla").options(**cluster.options()).option("subscribe", topic)
    rows = reader.options(**{"includeHeaders": "true", "kafka.isolation.level": "read_committed"}).load()
    ordered = rows.orderBy("partition", "offset")
    return [
        (row.partition, row.timestamp, as_bytes(row.key), as_bytes(row.value), row.headers or None)
        for row in ordered.collect()
    ]


def as_bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
