"""Damaged archives and archives that cannot be written: what is reported, and that nothing is lost after a fix."""

import shutil
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import data_files, error_with, make_topic, produce, run_all, sink, some_records

from ottla.pipeline.archive.lag import archive_lag, warnings
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.staging import OrderedFiles
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.stage import Context


def test_verify_reports_damaged_and_missing_files_holes_and_duplicates(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 1)
    stage = sink(context, topic_name, max_offsets_per_batch=40)
    produce(broker.bootstrap, topic_name, some_records(120, partitions=1))
    run_all(spark, stage)
    first, second, third = data_files(tmp_path)[:3]
    manifests = sorted((tmp_path / "archive" / "_manifests").iterdir())[1:]
    at = f"{topic_name}-0"

    content = first.read_bytes()
    first.write_bytes(content[:100] + b"no parquet")
    second.unlink()
    shutil.copy(third, second.with_name("not-in-a-manifest.parquet"))
    report = verify(spark, context.cluster, stage.path, deep=True)
    assert [Path(damage.path).name for damage in report.damage] == [second.name, first.name]
    assert "it is missing" in report.damage[0].what
    assert "it cannot be read; the manifest says that it holds 30 records" in report.damage[1].what
    assert f"{at} offset 0 to 39: on the cluster, but not in the archive's files." in report.sentences()
    later = verify(spark, context.cluster, stage.path, since=date(2026, 2, 1))
    assert later.sentences()[-1] == "The archive is whole (by manifests and files since 2026-02-01)."
    assert not verify(spark, context.cluster, stage.path, since=date(2026, 1, 31)).is_whole
    with error_with(f"reading file file://{first}"):
        second.write_bytes(content)
        archive_table(spark, stage.path).toPandas()

    first.write_bytes(content)
    second.write_bytes(content)
    manifests[1].unlink()
    report = verify(spark, context.cluster, stage.path)
    assert f"{at} offset 40 to 79: not archived." in report.sentences()
    assert f"{at} offset 0 to 29: archived more than once." in report.sentences()

    manifests[0].write_text('{"version": 1, "ran')
    with error_with(f"The manifest file://{manifests[0]} is damaged"):
        verify(spark, context.cluster, stage.path)


def test_a_path_that_cannot_be_written_stops_the_archive_until_it_is_fixed(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(100))
    stage = sink(context, topic_name)
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "_staging").write_text("in the way of the folder")
    with error_with(f"The archive at file://{archive} cannot be written", "No record is lost"):
        run_all(spark, stage)
    (archive / "_staging").unlink()
    run_all(spark, stage)
    assert verify(spark, context.cluster, stage.path).is_whole
    assert archive_table(spark, stage.path).count() == 100

    archive.rename(tmp_path / "elsewhere")
    with error_with(f"The archive at file://{archive} is gone", "Mount or restore it"):
        run_all(spark, stage)
    with error_with("is gone"):
        archive_table(spark, stage.path)
    (tmp_path / "elsewhere").rename(archive)
    produce(broker.bootstrap, topic_name, some_records(100))
    run_all(spark, stage)
    assert archive_table(spark, stage.path).count() == 200


def test_records_that_are_deleted_before_they_are_archived_are_reported(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 1, retention_ms="1000000000000")
    produce(broker.bootstrap, topic_name, some_records(50, partitions=1))
    stage = sink(context, topic_name)
    run_all(spark, stage)
    produce(broker.bootstrap, topic_name, some_records(50, partitions=1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic_name, 0, 70)]).values()
    deleted.result(30)

    at = f"{topic_name}-0"
    said = f"20 offsets of {at} were deleted before they were archived."
    assert warnings(archive_lag(context.cluster, [topic_name], Archive.at(stage.path).load().ends)) == [said]
    assert [finding.what for finding in stage.check()] == [said]
    with error_with(at, "50", "70"):
        run_all(spark, stage)
    run_all(spark, sink(context, topic_name, fail_on_data_loss=False))
    report = verify(spark, context.cluster, stage.path, deep=True)
    assert report.sentences()[0] == f"{at} offset 50 to 69: deleted by the topic before it was archived."
    assert len(report.findings) == 1
    assert archive_table(spark, stage.path).count() == 80


def test_records_that_are_deleted_while_a_batch_reads_are_a_hole(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_topic(broker.bootstrap, topic_name, 1, retention_ms="1000000000000")
    produce(broker.bootstrap, topic_name, some_records(20, partitions=1))
    write_files = OrderedFiles.write

    def losing(
        self: OrderedFiles, archive: Archive, rows: DataFrame, name: str, tasks: int
    ) -> tuple[DataFile, ...]:
        files = write_files(self, archive, rows.where("offset < 5 or offset >= 15"), name, tasks)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(topic_name, 0, 15)]).values()
        deleted.result(30)
        return files

    monkeypatch.setattr(OrderedFiles, "write", losing)
    stage = sink(context, topic_name, fail_on_data_loss=False)
    run_all(spark, stage)
    assert Archive.at(stage.path).load().ranges == (
        OffsetRange(topic_name, 0, 0, 5),
        OffsetRange(topic_name, 0, 15, 20),
    )
    report = verify(spark, context.cluster, stage.path)
    assert [str(finding) for finding in report.findings] == [
        f"{topic_name}-0 offset 5 to 14: deleted by the topic before it was archived."
    ]
