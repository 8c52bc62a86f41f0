"""`ottla pipeline status` of checkpoints on S3 and on HDFS: read without Spark, with the settings of the file."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.archiving import make_topic, produce, some_records
from tests.pipeline.connector_topics import Topics
from tests.pipeline.hdfs import running_hdfs
from typer.testing import CliRunner, Result

from ottla.cli.app import app
from ottla.pipeline.stage import ClusterSettings, Context

BUCKET = "checkpoints"
RECORDS = 20


@contextmanager
def running_s3() -> Iterator[dict[str, str]]:
    """A server with an empty bucket, and Hadoop's settings for it."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket=BUCKET)
        yield {
            "fs.s3a.endpoint": url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "key",
            "fs.s3a.secret.key": "secret",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }
    finally:
        server.stop()


def read_all(spark: SparkSession, context: Context, topic: str, stage: str) -> None:
    """A query of Spark's own, with the stage's checkpoint."""
    writer = context.stream(spark, topic).writeStream.format("noop")
    writer = writer.option("checkpointLocation", context.checkpoint(stage)).trigger(availableNow=True)
    query = writer.start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()


def write_pipeline(context: Context, topic: str, conf: Mapping[str, str]) -> None:
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in conf.items())
    (context.folder / "copy.sql").write_text("select key, value from raw")
    (context.folder / "pipeline.toml").write_text(
        f'name = "{context.pipeline}"\n[cluster]\nbootstrap = "{context.cluster.bootstrap}"\n'
        f'[spark]\ncheckpoints = "{context.checkpoints}"\n[spark.conf]\n{lines}'
        f'[transforms.copy]\nfrom = "{topic}"\nto = "copies"\nsql = "copy.sql"\n'
        f'[sinks.archive]\ntopics = ["{topic}"]\npath = "archive"\n'
    )


def status(context: Context) -> Result:
    return CliRunner().invoke(app, ["pipeline", "status", "--json", "--file", str(context.folder)])


def check_status(spark: SparkSession, context: Context, topic: str, conf: Mapping[str, str]) -> None:
    make_topic(context.cluster.bootstrap, topic)
    produce(context.cluster.bootstrap, topic, some_records(RECORDS))
    before_s = time.time()
    read_all(spark, context, topic, "copy")
    produce(context.cluster.bootstrap, topic, some_records(RECORDS))
    write_pipeline(context, topic, conf)
    done = status(context)
    assert done.exit_code == 0, done.output
    copy, archive = (json.loads(line) for line in done.stdout.splitlines())
    assert (copy["batch"], copy["state"], copy["behind"]) == (0, "all batches committed", RECORDS)
    assert sum(copy["done"][0][topic].values()) == RECORDS
    assert copy["at"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before_s - 2))
    assert (archive["batch"], archive["state"], archive["behind"]) == (None, "not started yet", None)


@pytest.mark.timeout(600)
def test_the_status_of_checkpoints_on_s3_needs_no_spark(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    jars = jars_for("s3")
    if isinstance(jars, str):
        pytest.skip(jars)
    with running_s3() as settings:
        for name, value in settings.items():
            spark._jsc.hadoopConfiguration().set(name, value)
        context = Context(topic_name, ClusterSettings(broker.bootstrap), tmp_path, f"s3a://{BUCKET}/cp")
        conf = {f"spark.hadoop.{name}": value for name, value in settings.items()}
        conf["spark.driver.extraClassPath"] = ":".join(map(str, jars))
        check_status(spark, context, topic_name, conf)
        # The archive's guard reads the checkpoint too: of the records that come now one is deleted.
        read_all(spark, context, topic_name, "archive")
        produce(broker.bootstrap, topic_name, some_records(RECORDS))
        Topics(broker.bootstrap).delete_before(topic_name, RECORDS + 1)
        done = status(context)
        assert done.exit_code == 1
        assert f"archive: 1 offsets of {topic_name}-0 were deleted before they were archived." in done.stderr

        denied = {**conf, "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9"}
        write_pipeline(context, topic_name, denied)
        done = status(context)
        assert done.exit_code == 1
        said = str(done.exception)
        assert f"s3a://{BUCKET}/cp/copy cannot be read" in said, said
        assert "credentials in `conf` of [spark]" in said


@pytest.mark.timeout(600)
def test_the_status_of_checkpoints_on_hdfs_needs_no_spark(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, topic_name: str
) -> None:
    jars = jars_for("hdfs")
    if isinstance(jars, str):
        pytest.skip(jars)
    with running_hdfs(jars, tmp_path / "hdfs") as url:
        context = Context(topic_name, ClusterSettings(broker.bootstrap), tmp_path, f"{url}/checkpoints")
        check_status(spark, context, topic_name, {})
