"""`format("ottla")` writes: batches and streams, at least once and exactly once."""

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.interop.brokers import RunningBroker
from tests.pipeline.written_topics import create_topic, numbers, records

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark import exactly_once
from ottla.pipeline.spark.sink.plan import fingerprint, operators_of

ROWS = 2000


def stream(spark: SparkSession, partitions: int = 2) -> DataFrame:
    """Numbers from 0, `ROWS` more each time that a query runs once."""
    source = spark.readStream.format("rate-micro-batch")
    counted = source.options(rowsPerBatch=ROWS, numPartitions=partitions).load()
    return counted.select(F.col("value").cast("string").alias("value"))


class Query:
    """One sink and its checkpoint, run once at a time."""

    def __init__(self, broker: RunningBroker, topic: str, checkpoint: Path) -> None:
        self.options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
        self.sink_id = f"sink-{topic}"
        self.checkpoint = checkpoint

    def run(self, rows: DataFrame, **options: str) -> StreamingQuery:
        writer = exactly_once(rows, self.sink_id).options(**{**self.options, **options})
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query


@pytest.fixture
def query(broker: RunningBroker, topic_name: str, tmp_path: Path) -> Query:
    create_topic(broker.bootstrap, topic_name)
    return Query(broker, topic_name, tmp_path / "checkpoint")


def test_every_column_reaches_the_record(
    spark: SparkSession, any_broker: RunningBroker, topic_name: str
) -> None:
    create_topic(any_broker.bootstrap, topic_name, partitions=3)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
    headers = [("a", b"1"), ("a", None)]
    columns = (
        "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, partition int,"
        " timestamp timestamp, other int"
    )
    rows: list[tuple[Any, ...]] = [
        (b"k", b"\x00\xff", headers, topic_name, 2, moment, 1),
        (None, None, None, topic_name, 1, None, 1),
        (b"k", b"", [], topic_name, 0, moment, 1),
    ]
    frame = spark.createDataFrame(rows, columns)
    options = {"kafka.bootstrap.servers": any_broker.bootstrap, "keepTimestamps": "true"}
    frame.write.format("ottla").options(**options).mode("append").save()
    plain, null, full = records(any_broker.bootstrap, topic_name)
    assert (full.key(), full.value(), full.headers(), full.partition()) == (b"k", b"\x00\xff", headers, 2)
    assert full.timestamp()[1] == plain.timestamp()[1] == int(moment.timestamp() * 1000)
    assert (plain.key(), plain.value(), plain.headers()) == (b"k", b"", None)
    assert (null.key(), null.value(), null.headers()) == (None, None, None)
    assert null.timestamp()[1] > full.timestamp()[1]


def test_keys_go_to_the_partitions_that_java_clients_choose(
    spark: SparkSession, broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=7)
    frame = spark.createDataFrame(
        [(f"key-{number}", "v") for number in range(20)], "key string, value string"
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic_name}
    frame.write.format("ottla").options(**options).mode("append").save()
    found = {message.key(): message.partition() for message in records(broker.bootstrap, topic_name)}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in found}
    assert len(found) == 20


def test_a_batch_with_an_id_is_written_once_however_often_it_runs(
    spark: SparkSession, any_broker: RunningBroker, topic_name: str
) -> None:
    create_topic(any_broker.bootstrap, topic_name)
    options = {
        "kafka.bootstrap.servers": any_broker.bootstrap,
        "topic": topic_name,
        "sinkId": f"b-{topic_name}",
    }

    def write(batch: int) -> None:
        rows = spark.range(batch * 100, batch * 100 + 100).select(F.col("id").cast("string").alias("value"))
        rows.write.format("ottla").options(**options, batchId=str(batch)).mode("append").save()

    for batch in (1, 1, 2, 2):
        write(batch)
    assert sorted(numbers(any_broker.bootstrap, topic_name)) == list(range(100, 300))
    with pytest.raises(PySparkException, match="has batch 2 of this query already"):
        write(1)


def test_a_stream_without_a_sink_id_is_written_at_least_once(
    spark: SparkSession, broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, topic_name)
    writer = stream(spark).writeStream.format("ottla").option("checkpointLocation", str(tmp_path))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic_name}
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()
    assert sorted(numbers(broker.bootstrap, topic_name)) == list(range(ROWS))


def test_a_new_checkpoint_is_rejected_until_it_names_the_query_that_it_replaces(
    spark: SparkSession, query: Query, broker: RunningBroker, tmp_path: Path
) -> None:
    first = query.run(stream(spark))
    query.checkpoint = tmp_path / "another"
    with pytest.raises(PySparkException, match=f"was last written by the query {first.id}"):
        query.run(stream(spark))
    assert len(numbers(broker.bootstrap, query.options["topic"])) == ROWS
    query.run(stream(spark), resetSink=str(first.id))
    query.run(stream(spark))
    written = numbers(broker.bootstrap, query.options["topic"])
    again = len(written) - ROWS
    assert again >= 2 * ROWS
    assert sorted(written) == sorted([*range(ROWS), *range(again)])


def test_an_older_checkpoint_is_rejected(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    query.run(stream(spark))
    shutil.copytree(query.checkpoint, tmp_path / "old")
    query.run(stream(spark))
    query.run(stream(spark))
    query.checkpoint = tmp_path / "old"
    with pytest.raises(PySparkException, match="has batch 2 of this query already"):
        query.run(stream(spark))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: rows.withColumn("key", F.expr("concat('a', uuid())")), "uuid()"),
        (lambda rows: rows.where(F.rand(7) < 0.5), "rand(7"),
        (lambda rows: rows.limit(10), "GlobalLimit 10"),
        (lambda rows: rows.repartition(3), "Repartition 3"),
        (lambda rows: rows.sample(0.5), "Sample"),
        (
            lambda rows: rows.select(F.udf(lambda text: text).asNondeterministic()("value").alias("value")),
            "<lambda>",
        ),
    ],
)
def test_a_nondeterministic_plan_is_rejected(spark: SparkSession, change: Any, named: str) -> None:
    with pytest.raises(PipelineError, match="cannot be written exactly once") as rejected:
        exactly_once(change(stream(spark)), "rejected")
    assert named in rejected.value.what


def test_values_that_are_constant_within_a_batch_are_accepted(spark: SparkSession) -> None:
    rows = stream(spark).withColumn("key", F.current_timestamp().cast("string")).repartition(3, "key")
    exactly_once(rows, "accepted")


def test_a_changed_secret_or_limit_is_the_same_plan_to_the_sink(spark: SparkSession) -> None:
    def plan(**options: str) -> str:
        given = {"kafka.bootstrap.servers": "h:1", "subscribe": "raw", **options}
        rows = spark.readStream.format("ottla").options(**given).load().select("value")
        return fingerprint(operators_of(rows))

    assert plan(minPartitions="4") == plan(
        minPartitions="4", maxOffsetsPerTrigger="9", **{"kafka.ssl.key.pem": "x"}
    )
    assert plan(minPartitions="4") != plan(minPartitions="5")


def test_a_changed_function_is_another_plan_to_the_sink(spark: SparkSession) -> None:
    def plan(factor: int, moved_to: int) -> str:
        def scaled(value: str) -> str:
            return value * factor

        def moved(batches: Any) -> Any:
            for batch in batches:
                yield batch.assign(key=moved_to)

        rows = stream(spark).withColumn("value", F.udf(scaled, useArrow=False)("value")).select("value")
        rows = rows.mapInPandas(moved, "value string, key int").repartition(3, "key")
        return fingerprint(operators_of(rows))

    assert plan(1, 1) == plan(1, 1)
    assert len({plan(1, 1), plan(2, 1), plan(1, 2)}) == 3


def test_a_plan_that_counts_rows_is_the_same_after_a_restart(spark: SparkSession) -> None:
    def plan(counted: str = "value") -> str:
        rows = stream(spark).repartition(3, "value").observe("dead", F.count(F.lit(counted)).alias("letters"))
        return fingerprint(operators_of(rows))

    assert plan() == plan()
    assert plan() != plan("another")


def test_adaptive_execution_of_streams_is_rejected(spark: SparkSession) -> None:
    setting = "spark.sql.adaptive.streaming.stateless.enabled"
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(PipelineError, match=f"Set {setting}=false"):
            exactly_once(stream(spark), "adaptive")
    finally:
        spark.conf.set(setting, "false")


def test_the_error_for_a_batch_says_how_to_write_one(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="are not a stream"):
        exactly_once(spark.range(3).select(F.col("id").cast("string").alias("value")), "batch")


def test_wrong_columns_stop_a_query_before_a_task_starts(spark: SparkSession, query: Query) -> None:
    with pytest.raises(PySparkException, match="`value` is bigint, and must be binary or string"):
        query.run(stream(spark).select(F.col("value").cast("long").alias("value")))
