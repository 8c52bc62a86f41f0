"""What the tests of the spool directory share: a stage run to its end, and what a topic holds then.

Run as a program, it is a driver that dies: it runs the stage, and kills itself and all its processes at one step.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.source import SpoolDirDataSource, SpoolDirReader, settings_of
from ottla.pipeline.ingest.spooldir.stage import SpoolDirSource
from ottla.pipeline.stage import ClusterSettings, Context

QUERY_TIMEOUT_S = 180
READ_TIMEOUT_S = 60


class Read(NamedTuple):
    file: str
    line: int
    position: int
    value: bytes
    key: bytes | None


def make_topic(bootstrap: str, topic: str, partitions: int = 2, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def read_topic(bootstrap: str, topic: str) -> list[Read]:
    """Every committed record, ordered by file and line."""
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
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return sorted(committed(consumer, len(partitions)))
    finally:
        consumer.close()


def committed(consumer: Consumer, partitions: int) -> Iterator[Read]:
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = consumer.poll(READ_TIMEOUT_S)
        assert message is not None, "the topic does not come to an end"
        if (error := message.error()) is not None:
            assert error.name() == "_PARTITION_EOF", error
            ended.add(message.partition())
            continue
        headers: Any = dict(message.headers() or [])
        value = message.value()
        assert value is not None
        yield Read(
            headers["file"].decode(),
            int(headers["line"]),
            int(headers["position"]),
            value,
            message.key(),
        )


def stage_in(context: Context, topic: str, **settings: Any) -> SpoolDirSource:
    """The folder `spool` of the pipeline into the topic."""
    table = SpoolDirSettings(**{"folder": "spool", "topic": topic, "settle_s": 0.0, **settings})
    return SpoolDirSource("files", table, context)


def run_once(spark: SparkSession, stage: SpoolDirSource) -> None:
    query = stage.start(spark, {"availableNow": True})
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S)
    finally:
        query.stop()


# What lets every driver of one test read the same, whichever of them it is.
SMALL = {"split_bytes": 100_000, "max_record_bytes": 1_000, "max_bytes_per_batch": 600_000}


class DyingReader(SpoolDirReader):
    def __init__(self, settings: SpoolDirSettings, step: str, group: int) -> None:
        super().__init__(settings)
        self.step = step
        self.group = group

    def die_at(self, step: str) -> None:
        if step == self.step:
            os.killpg(self.group, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rename = os.rename

        def rename_and_die(source: str, target: str) -> None:
            rename(source, target)
            self.die_at("renamed")

        os.rename = rename_and_die  # type: ignore[assignment]
        try:
            return super().latestOffset(start, limit)
        finally:
            os.rename = rename

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(super().read(partition)):
            if number == 0 and self.is_late(partition):
                self.die_at("reading")
            yield batch

    @staticmethod
    def is_late(partition: Any) -> bool:
        """The last of a batch: with two cores the first ones are committed by then."""
        return bool(partition.pieces[0][1].start >= 300_000)


class DyingSource(SpoolDirDataSource):
    def streamReader(self, schema: StructType) -> SpoolDirReader:
        step, group = os.environ["DIES_AT"].split(":")
        return DyingReader(settings_of(self.options), step, int(group))


def die(bootstrap: str, pipeline: str, folder: str, topic: str, step: str) -> None:
    from ottla.pipeline.spark.session import spark_session

    os.setpgid(0, 0)
    os.environ["DIES_AT"] = f"{step}:{os.getpgid(0)}"
    spark = spark_session("dies", master="local[2,4]", conf={"spark.ui.enabled": "false"})
    spark.dataSource.register(DyingSource)
    run_once(
        spark,
        stage_in(Context(pipeline, ClusterSettings(bootstrap), Path(folder), "checkpoints"), topic, **SMALL),
    )


if __name__ == "__main__":
    die(*sys.argv[1:])
