"""Rows a second through a Spark connector, in a process of its own.

`python -m bench.spark_client read|stream|write|archive '{"connector": "ottla", "bootstrap": ..., "topic": ...}'`
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.pipeline.spark_jars import spark_jars

from ottla.pipeline.archive.settings import ArchiveSettings
from ottla.pipeline.archive.stage import ArchiveSink
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark import exactly_once
from ottla.pipeline.spark.session import spark_session
from ottla.pipeline.stage import ClusterSettings, Context

Spec = dict[str, Any]


def session(master: str) -> SparkSession:
    jars = spark_jars()
    if isinstance(jars, str):
        raise RuntimeError(jars)
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.shuffle.partitions": "4",
    }
    return spark_session("bench", master, conf)


def read(spark: SparkSession, spec: Spec) -> float:
    """Reads every column of every row and writes to Spark's noop sink."""
    rows = spark.read.format(spec["connector"]).options(**servers(spec), subscribe=spec["topic"]).load()
    return timed(lambda: rows.write.format("noop").mode("overwrite").save())


def stream(spark: SparkSession, spec: Spec) -> float:
    """Reads the whole topic as a stream, with a checkpoint, and writes to the noop sink."""
    reader = spark.readStream.format(spec["connector"]).options(**servers(spec), subscribe=spec["topic"])
    if limit := spec.get("per_trigger"):
        reader = reader.option("maxOffsetsPerTrigger", limit)
    rows = reader.option("startingOffsets", "earliest").load()
    return run_query(rows.writeStream.format("noop"))


def write(spark: SparkSession, spec: Spec) -> float:
    """Writes rows of Parquet files to a topic: ours exactly once, Spark's at least once, which is all it offers."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = spark.range(0, spec["records"], 1, 4)
        columns = ("cast(cast(id as string) as binary) as key", "cast(lpad(id, 100, 'x') as binary) as value")
        numbers.selectExpr(*columns).write.mode("overwrite").parquet(folder)
        rows = spark.readStream.schema("key binary, value binary").parquet(folder)
        if spec["connector"] == "ottla":
            writer = exactly_once(rows, sink_id=f"bench-{spec['topic']}-{time.monotonic_ns()}")
        else:
            writer = rows.writeStream.format("kafka")
        return run_query(writer.options(**servers(spec)).option("topic", spec["topic"]))


def archive(spark: SparkSession, spec: Spec) -> float:
    """The whole topic into the archive; the other side writes the same columns of the same source as plain Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        context = Context("bench", ClusterSettings(spec["bootstrap"]), Path(folder), "checkpoints")
        if spec["connector"] == "ottla":
            stage = ArchiveSink("archive", ArchiveSettings((spec["topic"],), "archive"), context)
            seconds = timed(lambda: stage.start(spark, {"availableNow": True}).awaitTermination())
            written = sum(file.records for file in Archive.at(stage.path).load().files.values())
        else:
            target = f"{folder}/parquet"
            rows = context.stream(spark, spec["topic"], startingOffsets="earliest", includeLeaderEpoch="true")
            seconds = run_query(rows.writeStream.format("parquet").option("path", target))
            written = spark.read.parquet(target).count()
    if written != spec["records"]:
        raise RuntimeError(f"{written} records were written, not {spec['records']}")
    return seconds


def run_query(writer: Any) -> float:
    with tempfile.TemporaryDirectory() as checkpoint:
        ready = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return timed(lambda: ready.start().awaitTermination())


def timed(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def servers(spec: Spec) -> dict[str, str]:
    return {"kafka.bootstrap.servers": spec["bootstrap"]}


ROLES: dict[str, Callable[[SparkSession, Spec], float]] = {
    "read": read,
    "stream": stream,
    "write": write,
    "archive": archive,
}


def main(role: str, asked: str) -> None:
    spec: Spec = json.loads(asked)
    spark = session(spec.pop("master", "local[*]"))
    # The JVM compiles hot code, and Spark starts its Python workers: neither is to be measured.
    ROLES[role](spark, {**spec, **spec.pop("warm_up")})
    seconds = ROLES[role](spark, spec)
    spark.stop()
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
