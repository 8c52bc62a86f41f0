"""The archive on a real S3 server, as a Delta table too: written, verified, merged, asked and loaded again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.archiving import (
    END_OF_RECORDS_MS,
    make_topic,
    produce,
    records_of,
    reload_of,
    run_all,
    sink,
    some_records,
)
from tests.pipeline.connector_topics import Topics
from tests.pipeline.transforming import read_topic, retry_retriable_errors, transform_in

from ottla.pipeline.archive import delta, store
from ottla.pipeline.archive.coverage import can_read, verify_ranges
from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.filesystem import credentials
from ottla.pipeline.archive.merge import merge
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.files import files_at
from ottla.pipeline.replay.command import replay
from ottla.pipeline.replay.planning import ArchiveStage
from ottla.pipeline.stage import ClusterSettings, Context

BUCKET = "archives"
PATH = f"s3a://{BUCKET}/of raw"
RECORDS = 100


@pytest.fixture(scope="module")
def bucket(spark: SparkSession) -> Iterator[str]:
    """One that Spark knows how to reach. Spark keeps its connection, so all tests have the same server."""
    for purpose in ("s3", "delta"):
        jars = jars_for(purpose)
        if isinstance(jars, str):
            pytest.skip(jars)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket=BUCKET)
    session: Any = spark
    conf = session._jsc.hadoopConfiguration()
    for name, value in (
        ("endpoint", url),
        ("endpoint.region", "us-east-1"),
        ("access.key", "key"),
        ("secret.key", "secret"),
        ("path.style.access", "true"),
        ("connection.ssl.enabled", "false"),
    ):
        conf.set(f"fs.s3a.{name}", value)
    yield BUCKET
    server.stop()


@pytest.mark.timeout(600)
def test_an_archive_on_s3_is_merged_read_as_a_delta_table_and_reloaded(
    spark: SparkSession,
    broker: RunningBroker,
    bucket: str,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(store, "CONDENSE_AT", 2)
    context = Context(
        f"s3-{topic_name}", ClusterSettings(broker.bootstrap), tmp_path, f"s3a://{bucket}/checkpoints"
    )
    back = f"{topic_name}-back"
    for topic in (topic_name, back):
        make_topic(broker.bootstrap, topic)
    archive = sink(context, topic_name, PATH, format="delta")
    for _ in range(2):
        produce(broker.bootstrap, topic_name, some_records(RECORDS))
        run_all(spark, archive)
    assert sum(one.records for one in merge(spark, PATH, lambda: END_OF_RECORDS_MS)) == 2 * RECORDS
    report = verify(spark, context.cluster, PATH)
    assert report.sentences()[-1] == "The archive is whole (by manifests and files)."
    options = credentials(spark, PATH)
    assert can_read(PATH, options)
    assert verify_ranges(context.cluster, PATH, options=options).is_whole
    found = query("select count(*), count(distinct key) from archive", {"archive": PATH}, options)
    assert list(found[1]) == [(2 * RECORDS, 7)]
    files = files_at(PATH, spark)
    # The history is condensed, by conditional puts.
    assert Archive.at(PATH, spark).recent().condensed.sequence > 0
    assert len(files.names("_manifests/files")) == len(Archive.at(PATH, spark).recent().condensed.lists)
    assert files.names("_staging") == []
    assert files.create("once", "first")
    with monkeypatch.context() as late:
        # As for a writer that looked just before
        late.setattr(files, "exists", lambda path: False)
        assert not files.create("once", "second")
    assert files.read("once") == "first"

    # What Delta's own reader makes of the log, with a checkpoint and without
    # (a Delta table is one history, and has no column for its topic id)
    table = archive_table(spark, PATH, topic_name)
    (found,) = table.select("topicId").distinct().collect()
    assert found.topicId
    ours = table.drop("topicId")
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    reader = spark.read.format("delta")
    newest = reader.load(f"{PATH}/{topic_name}")
    assert newest.schema == ours.schema
    assert sorted(newest.collect()) == sorted(ours.collect())
    assert reader.option("versionAsOf", 1).load(f"{PATH}/{topic_name}").count() == RECORDS
    assert f"{2:020}.checkpoint.parquet" in files.names(f"{topic_name}/_delta_log")

    run_all(spark, reload_of(context, "back", PATH, to=back))
    assert records_of(spark, context.cluster, back) == records_of(spark, context.cluster, topic_name)


def test_a_replay_reads_what_a_topic_has_deleted_from_an_archive_on_s3(
    spark: SparkSession, broker: RunningBroker, bucket: str, tmp_path: Path, topic_name: str
) -> None:
    context = Context(
        f"s3-{topic_name}",
        ClusterSettings(broker.bootstrap),
        tmp_path,
        f"s3a://{bucket}/replayed/checkpoints",
    )
    path = f"s3a://{bucket}/replayed/archive"
    topics, live, new = Topics(broker.bootstrap), f"{topic_name}-live", f"{topic_name}-new"
    make_topic(broker.bootstrap, topic_name)
    topics.create(live)
    produce(broker.bootstrap, topic_name, some_records(20))
    run_all(spark, sink(context, topic_name, path))
    for partition in range(2):
        topics.delete_before(topic_name, 8, partition)
    (tmp_path / "copy.sql").write_text("select key, value, _origin from raw")
    transform = transform_in(context, source=topic_name, to=live, sql="copy.sql")
    archives = {topic_name: ArchiveStage("archive", path)}
    # the time of record 10: offset 5 of both partitions
    retry_retriable_errors(
        lambda: replay(spark, transform, to=new, from_="2026-01-31T22:40:00Z", archives=archives)
    )
    made = [record.origin for record in read_topic(broker.bootstrap, new)]
    assert sorted(made) == [(topic_name, partition, n) for partition in range(2) for n in range(5, 10)]
