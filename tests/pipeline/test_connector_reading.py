"""`format("ottla")` inside of Spark: batches and streams, on Ottla and on Apache Kafka."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import READ_COMMITTED, Sent, Topics, values

from ottla.pipeline.progress import progress_of

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


@pytest.fixture
def topics(any_broker: RunningBroker) -> Topics:
    return Topics(any_broker.bootstrap)


def batch(spark: SparkSession, topics: Topics, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap)
    return reader.options(**options).load()


def run_once(spark: SparkSession, topics: Topics, folder: Path, **options: str) -> StreamingQuery:
    """All that is there into Parquet files in `folder`, with its checkpoint beside; reads on where it left off."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap)
    rows = reader.options(startingOffsets="earliest", includeHeaders="true", **options).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()
    return query


def test_a_batch_has_the_columns_and_rows_of_the_topic(
    spark: SparkSession, topics: Topics, topic_name: str
) -> None:
    topics.create(topic_name, 2)
    sent = [Sent(b"v", b"k", (("h", b"1"),), 1_500), Sent(None, None, (), 2_000, partition=1)]
    topics.produce(topic_name, sent)
    rows = batch(spark, topics, subscribe=topic_name, includeHeaders="true")
    assert rows.schema == spark.createDataFrame([], SCHEMA).schema
    found = rows.selectExpr("*", "cast(timestamp as double) as seconds").orderBy("partition").collect()
    assert [tuple(row[name] for name in ("key", "value", "offset", "seconds")) for row in found] == [
        (b"k", b"v", 0, 1.5),
        (None, None, 0, 2.0),
    ]
    assert [row["headers"] for row in found] == [[("h", b"1")], None]
    assert batch(spark, topics, subscribe=topic_name).columns == rows.columns[:-1]


def test_an_empty_topic_and_a_pattern_without_topics_give_no_rows(
    spark: SparkSession, topics: Topics, topic_name: str
) -> None:
    topics.create(topic_name)
    assert batch(spark, topics, subscribe=topic_name).count() == 0
    assert batch(spark, topics, subscribePattern="no-such-topic.*").count() == 0


def test_a_session_that_was_started_without_ottla_has_the_format(
    spark: SparkSession, broker: RunningBroker, topic_name: str
) -> None:
    topics = Topics(broker.bootstrap)
    topics.create(topic_name)
    topics.produce(topic_name, values(3))
    assert batch(spark.newSession(), topics, subscribe=topic_name).count() == 3


def test_a_stream_reads_every_record_once_over_restarts_and_growth(
    spark: SparkSession, topics: Topics, topic_name: str, tmp_path: Path
) -> None:
    options = {"subscribePattern": f"{topic_name}.*", "maxOffsetsPerTrigger": "400", **READ_COMMITTED}
    topics.create(topic_name, 2)
    topics.produce(topic_name, [*values(600), *values(300, start=600, partition=1)])
    topics.transaction(topic_name, values(50, start=900), commit=True)
    topics.transaction(topic_name, values(50, start=5_000), commit=False)
    query = run_once(spark, topics, tmp_path, **options)
    assert len(query.recentProgress) >= 3
    latest: Any = query.lastProgress
    assert progress_of(latest).behind == 0

    topics.grow(topic_name, 3)
    topics.create(f"{topic_name}-more")
    topics.produce(topic_name, values(50, start=950, partition=2))
    topics.produce(f"{topic_name}-more", values(100, start=1_000))
    run_once(spark, topics, tmp_path, minPartitions="5", **options)

    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert sorted(int(row.value) for row in rows.select("value").collect()) == list(range(1_100))


def test_an_error_that_stops_a_query_is_one_sentence(
    spark: SparkSession, broker: RunningBroker, topic_name: str, tmp_path: Path
) -> None:
    topics = Topics(broker.bootstrap)
    with pytest.raises(PySparkException, match=f"The topic {topic_name} does not exist on"):
        batch(spark, topics, subscribe=topic_name).count()
    topics.create(topic_name)
    topics.produce(topic_name, values(10))
    run_once(spark, topics, tmp_path, subscribe=topic_name)
    topics.produce(topic_name, values(10))
    topics.delete_before(topic_name, 15)
    with pytest.raises(PySparkException, match="10 to 14 were deleted before they were read"):
        run_once(spark, topics, tmp_path, subscribe=topic_name)
    run_once(spark, topics, tmp_path, subscribe=topic_name, failOnDataLoss="false")
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 15
