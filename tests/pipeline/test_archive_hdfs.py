"""The archive on a real HDFS: written, verified and asked; and of two that write a file one does."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.archiving import make_topic, produce, run_all, sink, some_records
from tests.pipeline.hdfs import running_hdfs

from ottla.pipeline.archive import store
from ottla.pipeline.archive.coverage import verify_ranges
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.files import files_at
from ottla.pipeline.stage import ClusterSettings, Context

RECORDS = 100


def test_an_archive_on_hdfs_is_complete_and_no_file_is_replaced(
    spark: SparkSession,
    broker: RunningBroker,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jars = jars_for("hdfs")
    if isinstance(jars, str):
        pytest.skip(jars)
    monkeypatch.setattr(store, "CONDENSE_AT", 2)
    with running_hdfs(jars, tmp_path / "hdfs") as url:
        path = f"{url}/archives/of raw"
        context = Context(topic_name, ClusterSettings(broker.bootstrap), tmp_path, f"{url}/checkpoints")
        make_topic(broker.bootstrap, topic_name)
        archive = sink(context, topic_name, path, format="delta")
        produce(broker.bootstrap, topic_name, some_records(RECORDS))
        run_all(spark, archive)
        report = verify(spark, context.cluster, path)
        assert report.sentences()[-1] == "The archive is whole (by manifests and files)."
        assert archive_table(spark, path, topic_name).count() == RECORDS
        files = files_at(path, spark)
        # The history is condensed, by renames.
        assert Archive.at(path, spark).recent().condensed.sequence > 0
        assert verify_ranges(context.cluster, path, spark=spark).is_whole
        assert files.names("_staging") == []
        assert files.create("once", "first")
        # As for a writer that looked just before
        monkeypatch.setattr(files, "exists", lambda path: False)
        assert not files.create("once", "second")
        assert files.read("once") == "first"
