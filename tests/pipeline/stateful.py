"""Queries with state, written exactly once, and the records that they read.

Run as a program, it is a driver for a test to kill.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.pipeline import sink_faults as faults
from tests.pipeline.connector_topics import Sent
from tests.pipeline.quick_start import JAVA_OPTIONS

from ottla.pipeline.spark import exactly_once
from ottla.pipeline.stage import ClusterSettings, Context

# Spark's Python processes need not find the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

EVENTS = 400
STEP_MS = 6_000
MINUTE_MS = 60_000
BEGIN_MS = 1_772_366_400_000
# Each batch takes so many offsets.
BATCH = 200
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# A record comes a second time after so many others.
AGAIN_AFTER = 5


def sent_events() -> list[Sent]:
    """Each id twice, half a minute apart, so that each minute of event time has ten ids."""
    records = []
    for number in range(EVENTS):
        for event in (number, number - AGAIN_AFTER):
            if event >= 0:
                at = BEGIN_MS + number * STEP_MS
                records.append(Sent(b"%d" % event, b"%d" % event, (), at, number % 2))
    return records


def windows(raw: DataFrame) -> DataFrame:
    """How many records each window of five minutes has."""
    counted = raw.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "5 minutes")).count()
    return counted.select(
        F.unix_millis("window.start").cast("string").alias("key"),
        F.col("count").cast("string").alias("value"),
    )


def once(raw: DataFrame) -> DataFrame:
    rows = raw.withWatermark("timestamp", "10 minutes").dropDuplicatesWithinWatermark(["key"])
    return rows.select("key", "value")


def joined(raw: DataFrame) -> DataFrame:
    """Each record with those of the same id that come within 20 seconds, if the id is a multiple of 3.

    Such a record finds itself alone; the others find nothing.
    """
    number = F.col("value").cast("string").cast("int")
    left = raw.select(number.alias("id"), F.col("timestamp").alias("at"))
    right = raw.select(number.alias("other"), F.col("timestamp").alias("then"))
    right = right.where(F.col("other") % 3 == 0)
    left = left.withWatermark("at", "1 minute")
    right = right.withWatermark("then", "1 minute")
    near = F.expr("id = other and then >= at and then < at + interval 20 seconds")
    rows = left.join(right, near, "leftOuter")
    return rows.select(
        F.concat_ws("@", "id", F.unix_millis("at")).alias("key"),
        F.coalesce(F.col("other").cast("string"), F.lit("none")).alias("value"),
    )


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "windows-append": (windows, "append"),
    "windows-update": (windows, "update"),
    "windows-complete": (windows, "complete"),
    "once": (once, "append"),
    "joined": (joined, "append"),
}


def start(spark: SparkSession, context: Context, raw: str, name: str, source: str) -> StreamingQuery:
    """Writes to the topic RAW-NAME."""
    query, mode = QUERIES[name]
    rows = query(context.stream(spark, raw, maxOffsetsPerTrigger=str(BATCH)))
    writer = exactly_once(rows, f"{raw}-{name}").format(source).outputMode(mode)
    writer = writer.options(**context.cluster.options()).option("topic", f"{raw}-{name}")
    return writer.option("checkpointLocation", context.checkpoint(name)).trigger(availableNow=True).start()


def drive(master: str, bootstrap: str, folder: str, raw: str, *names: str) -> None:
    from ottla.pipeline.spark.session import spark_session

    spark = spark_session("dies", master=master, conf=CONF)
    context = Context(raw, ClusterSettings(bootstrap), Path(folder), "checkpoints")
    queries = []
    for name in names:
        source = f"hangs-{name}"
        marks = Path(folder, "faults", name)
        spark.dataSource.register(faults.faulty_source(source, marks, None, hang_between))
        queries.append(start(spark, context, raw, name, source))
    for query in queries:
        query.awaitTermination()


def exit_inside(partition: int, folder: str) -> None:
    if partition == 1 and faults.first_time(folder, "exited inside"):
        os._exit(1)


def exit_behind(partition: int, folder: str) -> None:
    if partition == 0 and faults.first_time(folder, "exited behind"):
        os._exit(1)


def hang_between(partition: int, folder: str) -> None:
    """Behind the commit of partition 0 in the second batch, so that kills find the batch half written."""
    if partition == 0 and not faults.first_time(folder, "first batch"):
        faults.note_commit(partition, folder)
        while True:
            time.sleep(0.05)


if __name__ == "__main__":
    drive(*sys.argv[1:])
