"""The driver of an archive is killed where it hurts most: what it started again archives is whole, and once."""

import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import data_files, make_topic, produce, run_all, sink, some_records

from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verify import verify
from ottla.pipeline.stage import Context

ROOT = Path(__file__).parents[2]
RECORDS = 200


def test_a_driver_killed_around_the_manifest_neither_loses_nor_doubles(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(RECORDS))
    stage = sink(context, topic_name)

    die(broker, tmp_path, topic_name, "before-manifest")
    # The second batch's files are at their places, and yet no part of the archive.
    assert len(data_files(tmp_path)) > len(Archive.at(stage.path).load().files)
    assert archive_table(spark, stage.path).count() == 40
    die(broker, tmp_path, topic_name, "after-manifest")
    # Spark does not know of the last batch, and runs it again.
    commits = tmp_path / "checkpoints" / "archive" / "commits"
    manifests = tmp_path / "archive" / "_manifests"
    assert len([file for file in commits.iterdir() if file.name.isdigit()]) < len(list(manifests.iterdir()))

    run_all(spark, stage)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    assert archive_table(spark, stage.path).count() == RECORDS
    assert {str(file.relative_to(stage.path)) for file in data_files(tmp_path)} == set(
        Archive.at(stage.path).load().files
    )


def die(broker: RunningBroker, folder: Path, topic: str, when: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.archive_victim",
        broker.bootstrap,
        str(folder),
        topic,
        when,
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
