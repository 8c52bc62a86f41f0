"""The archive on a real broker: what lies where, that it is whole, and that it is asked and merged as one table."""

from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import (
    BEGIN_MS,
    MINUTE_MS,
    data_files,
    error_with,
    make_topic,
    produce,
    run_all,
    sink,
    some_records,
)

from ottla.cli.pipeline_archive import _format_value
from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.merge import CLOSED_AFTER_MS, KEEP_SUPERSEDED_MS, merge
from ottla.pipeline.archive.stage import ArchiveSink
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table, register_views
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.files import HadoopFiles
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.stage import Context

# The records of a run lie in 23:00, 0:00 and 1:00, and in the half hours around them.
RECORDS, HOURS = 240, 5
END_MS = BEGIN_MS + RECORDS * MINUTE_MS


def test_records_are_archived_by_topic_date_and_hour_and_small_files_are_merged(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    stage = sink(context, topic_name)
    assert list(stage.check()) == []
    for _ in range(2):
        produce(broker.bootstrap, topic_name, some_records(RECORDS))
        run_all(spark, stage)
    run_all(spark, stage)

    files = data_files(tmp_path)
    folders = sorted({str(file.parent.relative_to(tmp_path / "archive" / topic_name)) for file in files})
    assert folders[:3] == ["date=2026-01-31/hour=22", "date=2026-01-31/hour=23", "date=2026-02-01/hour=00"]
    assert len(files) == 2 * HOURS
    assert pq.read_schema(files[0]).names == [
        "topic", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "key", "value", "headers",
    ]  # fmt: skip
    assert verify(spark, context.cluster, stage.path, deep=True).sentences()[-1] == (
        "The archive is whole (compared with the cluster byte for byte)."
    )

    now_ms = END_MS + 60 * MINUTE_MS + CLOSED_AFTER_MS
    assert [(one.before, one.after) for one in merge(spark, stage.path, lambda: now_ms)] == [(2, 1)] * HOURS
    assert merge(spark, stage.path, lambda: now_ms) == []
    assert len(data_files(tmp_path)) == 3 * HOURS
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    merge(spark, stage.path, lambda: now_ms + KEEP_SUPERSEDED_MS)
    assert len(data_files(tmp_path)) == HOURS

    assert register_views(spark, {"archive": stage.path}) == ["archive", topic_name]
    answer = spark.sql(
        f"select count(*), count(distinct partition, offset), count(leaderEpoch) from `{topic_name}` where hour = 23"
    )
    assert [tuple(row) for row in answer.collect()] == [(120, 120, 120)]
    assert archive_table(spark, stage.path).count() == 2 * RECORDS
    columns = "partition, key, value, headers, date, hour, leaderEpoch, topicId"
    ours = spark.sql(
        f"select offset, {columns}, unix_millis(timestamp) from archive order by partition, offset"
    )
    theirs = f'select "offset", {columns}, epoch_ms(timestamp) from archive order by partition, "offset"'
    _, found = query(theirs, {"archive": stage.path}, {})
    assert [_format_value(tuple(row)) for row in ours.collect()] == [_format_value(row) for row in found]


def test_offsets_without_records_are_covered_and_a_new_checkpoint_continues_after_the_archive(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic_name, value)
        producer.flush(30)
        end(30)
    stage = sink(context, topic_name)
    run_all(spark, stage)
    (tmp_path / "checkpoints").rename(tmp_path / "lost")
    produce(broker.bootstrap, topic_name, [{"value": b"later"}])
    run_all(spark, stage)

    assert Archive.at(stage.path).load().ranges == (
        OffsetRange(topic_name, 0, 0, 8),
        OffsetRange(topic_name, 0, 8, 9),
    )
    values = archive_table(spark, stage.path, topic_name).orderBy("offset").select("value").collect()
    assert [bytes(row.value) for row in values] == [b"kept"] * 3 + [b"later"]
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole


def test_a_stage_does_not_repeat_offsets_that_another_stage_archived(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 1)
    stage = sink(context, topic_name)
    other = ArchiveSink("other", stage.settings, context)
    for one in (stage, other):
        produce(broker.bootstrap, topic_name, some_records(30, partitions=1))
        run_all(spark, one)
    produce(broker.bootstrap, topic_name, some_records(30, partitions=1))

    archive = Archive.at(stage.path)
    before = archive.load().number
    folder = context.checkpoint(stage.name)
    with error_with(f"{topic_name}-0 offset 30 to 59 is archived already", f"checkpoint file://{folder}"):
        run_all(spark, stage)
    # It has not claimed the topic, so the other could still run.
    assert archive.load().number == before
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole

    Path(folder).rename(f"{folder}-old")
    run_all(spark, stage)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    assert archive_table(spark, stage.path).count() == 90


def test_hadoops_file_systems_behave_as_a_local_folder(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(f"file://{tmp_path}/with space", spark)
    assert (files.names("none"), files.below("none"), files.exists("none")) == ([], [], False)
    assert files.create("a/b.json", "first")
    assert not files.create("a/b.json", "second")
    assert files.read("a/b.json") == "first"
    assert files.create("staged", "new")
    files.move("staged", "a/b.json")
    assert [(found.path, found.bytes) for found in files.below("")] == [("a/b.json", 3)]
    files.make_folder("c")
    assert files.names("") == ["a", "c"]
    files.delete("a")
    files.delete("a")
    assert files.names("") == ["c"]
