"""Replays of what retention has deleted: from the archive and the topic, each record once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import wait_until
from tests.pipeline.archiving import BEGIN_MS, MINUTE_MS, data_files, produce, run_all, sink, some_records
from tests.pipeline.connector_topics import Topics
from tests.pipeline.pipeline_command import ottla_asking
from tests.pipeline.replay_victim import archives, transform_of
from tests.pipeline.test_archive_recreated import create_again
from tests.pipeline.transforming import Read, read_topic, retry_retriable_errors, run_once, transform_in

from ottla.admin.position import EARLIEST
from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.replay.command import replay
from ottla.pipeline.replay.comparison import Comparison
from ottla.pipeline.replay.planning import Planner
from ottla.pipeline.replay.source import ReplayReader
from ottla.pipeline.stage import Context
from ottla.pipeline.topics import connect
from ottla.pipeline.transform.stage import Transform

COPY = "select key, value, headers, _origin from raw"

PIPELINE = """
name = "{context.pipeline}"
cluster = {{ bootstrap = "{context.cluster.bootstrap}" }}

[transforms.copy]
from = "{raw}"
to = "{live}"
sql = "copy.sql"
max_records_per_batch = 16

[sinks.archive]
kind = "archive"
topics = ["{raw}"]
path = "archive"
"""


@pytest.fixture
def topics(broker: RunningBroker) -> Topics:
    return Topics(broker.bootstrap)


def copying(context: Context, raw: str, live: str) -> Transform:
    (context.folder / "copy.sql").write_text(COPY)
    return transform_in(context, "copy", source=raw, to=live, sql="copy.sql", max_records_per_batch=16)


def replayed(
    spark: SparkSession, transform: Transform, raw: str, to: str, from_: str = "earliest"
) -> tuple[Comparison, list[str]]:
    """The comparison with the topic in use, and the warnings."""
    warnings: list[str] = []
    found = archives(transform.context, raw)

    def run() -> list[Comparison]:
        warnings.clear()
        return replay(spark, transform, to=to, from_=from_, archives=found, warn=warnings.append)

    return retry_retriable_errors(run)[0], warnings


def places(records: Iterable[Read], partition: int) -> list[int]:
    """The offsets of the raw records of a partition, in the order of the topic."""
    return [record.origin[2] for record in records if record.origin[1] == partition]


def contents(records: Iterable[Read]) -> list[tuple[Any, ...]]:
    rows = [(one.origin, one.key, one.value, sorted(one.headers.items())) for one in records]
    return sorted(rows, key=lambda row: row[0])


def counts(comparison: Comparison) -> tuple[int, ...]:
    return comparison.equal, comparison.changed, comparison.added, comparison.removed


def test_what_a_topic_has_deleted_is_replayed_from_its_archive_and_the_rest_from_the_topic(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, live, new, late = (f"{topic_name}-{name}" for name in ("raw", "live", "new", "late"))
    topics.create(raw, 2, retention_ms="-1")
    topics.create(live)
    transform = copying(context, raw, live)
    produce(topics.bootstrap, raw, some_records(40))
    run_once(spark, transform)
    # These two are deleted before they are archived.
    topics.delete_before(raw, 2, partition=1)
    archive = sink(context, raw, fail_on_data_loss=False)
    run_all(spark, archive)
    topics.delete_before(raw, 12, partition=0)
    topics.delete_before(raw, 7, partition=1)
    produce(topics.bootstrap, raw, some_records(50)[40:])
    run_once(spark, transform)
    (context.folder / "pipeline.toml").write_text(PIPELINE.format(context=context, raw=raw, live=live))
    asked = ("--transform", "copy", "--to", new, "--file", str(context.folder), "--json")
    said = retry_retriable_errors(lambda: ottla_asking(spark, "pipeline", "replay", *asked))

    warning, compared = map(json.loads, said.splitlines())
    assert warning == {
        "warning": f"Not replayed: {raw}-1 offset 0 to 1, 2 in all. The topic has deleted them, and no archive has "
        "them."
    }
    assert [compared[kind] for kind in ("equal", "changed", "added", "removed")] == [48, 0, 0, 0]
    made, before = read_topic(topics.bootstrap, new), read_topic(topics.bootstrap, live)
    assert (places(made, 0), places(made, 1)) == ([*range(25)], [*range(2, 25)])
    assert contents(made) == [one for one in contents(before) if one[0] not in ((raw, 1, 0), (raw, 1, 1))]

    # From a time in the archived part on; offset 4 of partition 0 is record 8
    time = datetime.fromtimestamp((BEGIN_MS + 8 * MINUTE_MS) / 1000, UTC).isoformat()
    comparison, warnings = replayed(spark, transform, raw, late, time)
    made = read_topic(topics.bootstrap, late)
    assert (places(made, 0), places(made, 1)) == ([*range(4, 25)], [*range(4, 25)])
    assert (counts(comparison), warnings) == ((42, 0, 0, 0), [])


def test_a_topic_that_was_deleted_and_created_again_is_replayed_with_its_earlier_records_first(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, live, gone, again = (f"{topic_name}-{name}" for name in ("raw", "live", "gone", "again"))
    topics.create(raw, 2, retention_ms="-1")
    topics.create(live)
    transform = copying(context, raw, live)
    produce(topics.bootstrap, raw, some_records(30))
    run_once(spark, transform)
    run_all(spark, sink(context, raw))
    # These are in no archive, and their outputs must not be taken for lost ones.
    produce(topics.bootstrap, raw, some_records(40)[30:])
    run_once(spark, transform)
    before = read_topic(topics.bootstrap, live)
    topics.delete(raw)
    wait_until(lambda: raw not in connect(context.cluster).metadata().topics, "the topic is gone")

    comparison, warnings = replayed(spark, transform, raw, gone)
    made = read_topic(topics.bootstrap, gone)
    assert (places(made, 0), places(made, 1)) == ([*range(15)], [*range(15)])
    assert contents(made) == [one for one in contents(before) if one[0][2] < 15]
    assert (counts(comparison), warnings) == ((30, 0, 0, 0), [])
    with pytest.raises(
        PipelineError, match=f"{raw}, which the transform reads, does not exist, and no archive"
    ):
        replay(spark, transform, to=f"{topic_name}-none")

    # The same offsets and keys once more, a day later
    topics.create(raw, 2, retention_ms="-1")
    later = [one | {"timestamp": one["timestamp"] + 1440 * MINUTE_MS} for one in some_records(8)]
    produce(topics.bootstrap, raw, later)
    comparison, _ = replayed(spark, transform, raw, again)
    made = read_topic(topics.bootstrap, again)
    assert (places(made, 0), places(made, 1)) == ([*range(15), *range(4)], [*range(15), *range(4)])
    assert (counts(comparison)) == (30, 0, 8, 0)


HELD = """
import time
from pathlib import Path
from ottla.pipeline.transform.parts import guard

def clean(raw):
    folder = Path(__file__).parent

    def same(value):
        if value == b"55" and (folder / "hold").exists():
            (folder / "held").touch()
            time.sleep(600)
        return value

    rows = guard(raw, same, "binary")
    return rows.withColumn("value", rows.data)
"""


@pytest.mark.timeout(600)
def test_a_replay_killed_in_its_archived_part_resumes_after_retention_moved_on(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, live, new = (f"{topic_name}-{name}" for name in ("raw", "live", "new"))
    for topic in (raw, live, new):
        topics.create(topic, 2, retention_ms="-1")
    # A batch takes 50 records of each partition. The value 55 is in the second batch, and only in partition 0.
    records = [{"value": b"%d" % (n + 1000 * part), "partition": part} for part in (0, 1) for n in range(120)]
    produce(topics.bootstrap, raw, records)
    run_all(spark, sink(context, raw))
    for partition in (0, 1):
        topics.delete_before(raw, 60, partition)
    (context.folder / "transforms.py").write_text(HELD)
    (context.folder / "hold").touch()
    arguments = [topics.bootstrap, context.pipeline, str(context.folder), raw, live, new]
    log = context.folder / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.replay_victim", *arguments],
            start_new_session=True,
            stdout=output,
            stderr=output,
        )

    def is_held() -> bool:
        assert driver.poll() is None, log.read_text(errors="replace")[-5000:]
        return (context.folder / "held").exists()

    try:
        wait_until(is_held, "the second batch has begun", 300)
        # Partition 1 of the second batch is committed while partition 0 hangs.
        wait_until(lambda: len(read_topic(topics.bootstrap, new)) >= 150, "its other half is committed", 120)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(read_topic(topics.bootstrap, new)) == 150
    (context.folder / "hold").unlink()
    for partition in (0, 1):
        topics.delete_before(raw, 110, partition)

    _, warnings = replayed(spark, transform_of(context, raw, live), raw, new)
    made = read_topic(topics.bootstrap, new)
    assert sorted(record.origin[1:] for record in made) == [(part, n) for part in (0, 1) for n in range(120)]
    assert sorted(int(record.value or b"") for record in made) == sorted(int(one["value"]) for one in records)
    assert warnings == []


@pytest.fixture
def archived(spark: SparkSession, context: Context, topics: Topics, topic_name: str) -> str:
    """A topic with 40 archived records and 10 that are not, of which everything before offset 5 is deleted."""
    topics.create(topic_name, retention_ms="-1")
    produce(topics.bootstrap, topic_name, some_records(40, partitions=1))
    run_all(spark, sink(context, topic_name))
    produce(topics.bootstrap, topic_name, some_records(50, partitions=1)[40:])
    topics.delete_before(topic_name, 5)
    return topic_name


def reader_of(spark: SparkSession, context: Context, topic: str) -> ReplayReader:
    planner = Planner(spark, context, connect(context.cluster), archives(context, topic))
    plan = planner.plan(context.checkpoint("replay"), [topic], EARLIEST)
    options = {"plan": plan.to_json(), "subscribe": topic, "includeHeaders": "true"}
    committed = {"kafka.isolation.level": "read_committed"}
    return ReplayReader(context.cluster.options() | options | committed)


def offsets_of(reader: ReplayReader, parts: list[InputPartition]) -> list[int]:
    rows = pa.Table.from_batches(batch for part in parts for batch in reader.read(part))
    return rows["offset"].to_pylist()


def test_records_that_are_deleted_after_a_batch_was_planned_come_from_the_archive(
    spark: SparkSession, context: Context, topics: Topics, archived: str
) -> None:
    reader = reader_of(spark, context, archived)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    assert end[archived] == {"0": 30}
    planned = reader.partitions(start, end)
    (part,) = (one.value for one in planned)
    assert (part.archived.wanted.end, part.topic.start) == (5, 5)
    topics.delete_before(archived, 20)
    assert offsets_of(reader, planned) == [*range(30)]
    # If the batch runs again, it has the same Spark partition with the same rows.
    (again,) = reader_of(spark, context, archived).partitions(start, end)
    assert again.value.topic.start == 20
    assert offsets_of(reader, [again]) == [*range(30)]
    topics.delete(archived)
    wait_until(lambda: archived not in connect(context.cluster).metadata().topics, "the topic is gone")
    (again,) = reader_of(spark, context, archived).partitions(start, end)
    assert again.value.topic is None
    assert offsets_of(reader, [again]) == [*range(30)]


def test_a_replay_that_began_without_an_archive_reads_on_without_it(
    spark: SparkSession, context: Context, archived: str
) -> None:
    planner = Planner(spark, context, connect(context.cluster), archives(context, archived))
    begun = context.folder / "begun"
    (begun / "offsets").mkdir(parents=True)
    (begun / "offsets" / "0").touch()
    plan = planner.plan(str(begun), [archived], EARLIEST)
    assert (plan.paths, plan.start) == ({}, {TopicPartition(archived, 0): 5})
    plan = planner.plan(str(context.folder / "new"), [archived], EARLIEST)
    assert (len(plan.paths), plan.start) == (1, {TopicPartition(archived, 0): 0})


def test_what_neither_the_topic_nor_the_archive_has_stops_the_replay(
    spark: SparkSession, context: Context, topics: Topics, archived: str
) -> None:
    reader = reader_of(spark, context, archived)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    topics.delete_before(archived, 45)
    said = f"{archived}-0 no longer has offset 40 to 44, and the archive .* does not have it either.*: start a new"
    with pytest.raises(PipelineError, match=said):
        reader_of(spark, context, archived).partitions(start, end)
    with pytest.raises(PipelineError, match=said):
        offsets_of(reader, planned)
    create_again(topics.bootstrap, archived)
    with pytest.raises(PipelineError, match=r"was deleted and created again.* start a new replay"):
        reader_of(spark, context, archived).latestOffset(start, ReadAllAvailable())


def test_an_archive_that_cannot_be_read_is_reported_before_the_replay_starts(
    spark: SparkSession, context: Context, topics: Topics, archived: str, tmp_path: Path
) -> None:
    topics.create(f"{archived}-live")
    transform = copying(context, archived, f"{archived}-live")
    damaged = data_files(tmp_path)[0]
    damaged.write_bytes(b"no parquet")
    with pytest.raises(PipelineError, match=f"{damaged.name} cannot be read.*the same command resumes"):
        replayed(spark, transform, archived, f"{archived}-damaged")
    shutil.rmtree(context.path("archive"))
    with pytest.raises(PipelineError, match="archive is gone: it has no folder _manifests"):
        replayed(spark, transform, archived, f"{archived}-gone")
    # Nothing has ever been archived there.
    shutil.rmtree(context.checkpoint("archive"))
    _, warnings = replayed(spark, transform, archived, f"{archived}-new")
    assert places(read_topic(topics.bootstrap, f"{archived}-new"), 0) == [*range(5, 50)]
    assert warnings == [
        f"Not replayed: {archived}-0 offset 0 to 4, 5 in all. The topic has deleted them, and no archive has them."
    ]
