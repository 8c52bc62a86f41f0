"""An archive that is behind catches up: without pauses, on all cores, and without waiting for the retention watch."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import wait_until
from tests.pipeline.archiving import (
    MINUTE_MS,
    QUERY_TIMEOUT_S,
    data_files,
    make_topic,
    produce,
    run_all,
    sink,
    some_records,
)

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive import samples, sizing, staging
from ottla.pipeline.archive.lag import archive_lag
from ottla.pipeline.archive.samples import mean_record_bytes
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.stage import Context

NEVER = "1000 hours"


def test_samples_do_not_wait_for_records_that_do_not_come(
    broker: RunningBroker, context: Context, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait for more than the ten records of each partition would only end with the test's timeout."""
    monkeypatch.setattr(samples, "TIMEOUT_S", 3600.0)
    make_topic(broker.bootstrap, topic_name, 8)
    partitions = [TopicPartition(topic_name, number) for number in range(8)]
    start, end = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 10)
    assert mean_record_bytes(context.cluster, start, start) is None
    produce(
        broker.bootstrap,
        topic_name,
        ({"key": b"k", "value": b"x" * 9, "partition": number % 8} for number in range(80)),
    )
    lags = archive_lag(context.cluster, [topic_name], {})
    assert {lag.at: lag.behind for lag in lags} == end
    assert mean_record_bytes(context.cluster, start, end) == 10


def test_a_backlog_is_archived_without_waiting_for_the_next_interval(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(160))
    stage = sink(context, topic_name, max_offsets_per_batch=40, every=NEVER)
    query = stage.start(spark, {"processingTime": "100 milliseconds"})
    try:
        archive = Archive.at(stage.path)
        wait_until(lambda: sum(archive.load().ends.values()) == 160, "all are archived", QUERY_TIMEOUT_S)
        assert list(archive.load().batches.values()) == [3]
        # Less than a whole batch waits for the next interval. The batch after it shows that it did.
        produce(broker.bootstrap, topic_name, some_records(30))
        wait_until(lambda: "Waiting" in query.status["message"], "it waits", QUERY_TIMEOUT_S)
        produce(broker.bootstrap, topic_name, some_records(10))
        wait_until(lambda: sum(archive.load().ends.values()) == 200, "all are archived", QUERY_TIMEOUT_S)
        assert list(archive.load().batches.values()) == [4]
    finally:
        query.stop()


def test_one_large_partition_is_written_by_all_cores(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizing, "_TASK_BYTES_MIN", 60)
    make_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, some_records(100, partitions=1, step_ms=1))
    run_all(spark, sink(context, topic_name))
    assert len(data_files(tmp_path)) == spark.sparkContext.defaultParallelism == 2
    assert verify(spark, context.cluster, str(tmp_path / "archive"), deep=True).is_whole


def test_files_have_the_order_of_offsets_however_many_hours_a_task_has(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record has another hour than the one before. A batch of many hours is sorted, and the one after it."""
    sorts: list[str] = []

    def sort(*arguments: Any) -> None:
        sorts.append("sorted")
        stage_sorted(*arguments)

    stage_sorted = staging.stage_sorted
    monkeypatch.setattr(staging, "stage_sorted", sort)
    monkeypatch.setattr(staging, "OPEN_FILES_MAX", 4)
    make_topic(broker.bootstrap, topic_name)
    stage = sink(context, topic_name, max_offsets_per_batch=40, merge_small_files=False)
    for hours in (3, 4, 2, 2):
        records = some_records(40, step_ms=0)
        for number, record in enumerate(records):
            record["timestamp"] += number % hours * 60 * MINUTE_MS
        produce(broker.bootstrap, topic_name, records)
    run_all(spark, stage)
    assert len(sorts) == 2
    files = data_files(tmp_path)
    assert len(files) == 3 + 4 + 2 + 2
    for file in files:
        rows = pq.read_table(file, columns=["partition", "offset"], partitioning=None).to_pylist()
        offsets = [(row["partition"], row["offset"]) for row in rows]
        assert len(offsets) >= 10
        assert offsets == sorted(offsets)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
