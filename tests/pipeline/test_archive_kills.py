"""An archive ends where it hurts most, or is followed while it lives: what is archived is whole, and once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archive_victim import BATCH_OFFSETS
from tests.pipeline.archiving import data_files, error_with, make_topic, produce, run_all, sink, some_records

from ottla.pipeline.archive import automatic_merge, batch_writer
from ottla.pipeline.archive.delta import DeltaLog
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.stage import Context

ROOT = Path(__file__).parents[2]
RECORDS = 120


def test_an_archive_that_is_killed_or_loses_its_topics_neither_loses_nor_repeats_records(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(RECORDS))
    stage = sink(context, topic_name, format="delta", max_offsets_per_batch=BATCH_OFFSETS)
    archive = Archive.at(stage.path)
    kill_before_manifest(broker, tmp_path, topic_name, "batch")
    # The second batch's files are at their places, and yet no part of the archive.
    assert len(data_files(tmp_path)) > len(archive.load().files)
    assert archive_table(spark, stage.path).count() == BATCH_OFFSETS

    def follow(*_: object) -> None:
        claim_topics(Archive.at(stage.path), [topic_name])
        raise OSError("ended")

    with monkeypatch.context() as ending:
        # The manifest is there; the Delta log and Spark do not know of it: Spark runs the batch again.
        ending.setattr(batch_writer, "publish", follow)
        with error_with(f"This run no longer archives the topic {topic_name} into file://{stage.path}: "):
            run_all(spark, stage)
    assert list(archive.load().batches.values()) == [1]
    assert DeltaLog(archive.files, topic_name).position()[1] < archive.load().number

    run_all(spark, stage)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    assert archive_table(spark, stage.path).count() == RECORDS
    files = set(archive.load().files)
    assert {str(file.relative_to(stage.path)) for file in data_files(tmp_path)} == files
    log = DeltaLog(archive.files, topic_name)
    assert (log.position()[1], len(log.listed_files())) == (archive.load().number, len(files))
    assert archive.files.names("_staging") == []


def test_a_stage_that_is_killed_while_it_merges_small_files_leaves_every_record_once(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_topic(broker.bootstrap, topic_name)
    stage = sink(context, topic_name, format="delta", max_offsets_per_batch=BATCH_OFFSETS)
    archive = Archive.at(stage.path)
    monkeypatch.setattr(automatic_merge, "FILES_MIN", 2)
    count = BATCH_OFFSETS // 2

    def archive_more() -> None:
        produce(broker.bootstrap, topic_name, some_records(count))
        run_all(spark, stage)

    archive_more()
    produce(broker.bootstrap, topic_name, some_records(count))
    kill_before_manifest(broker, tmp_path, topic_name, "merge")
    # The merged file is at its place beside the small ones, and yet no part of the archive.
    assert len(data_files(tmp_path)) > len(archive.load().files) == 2
    assert archive_table(spark, stage.path).count() == 2 * count
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole

    reader = archive_table(spark, stage.path)
    archive_more()
    assert len(archive.load().files) == 1
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    # A query that began before the merge still finds the small files.
    assert reader.count() == 2 * count
    assert archive_table(spark, stage.path).count() == 3 * count
    log = DeltaLog(archive.files, topic_name)
    assert len(log.listed_files()) == 1

    # Later batches of full size do not wait for a merge.
    produce(broker.bootstrap, topic_name, some_records(BATCH_OFFSETS))
    run_all(spark, stage)
    assert len(archive.load().files) > 1


def kill_before_manifest(broker: RunningBroker, folder: Path, topic: str, where: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.archive_victim",
        broker.bootstrap,
        str(folder),
        topic,
        where,
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
