# ruff: noqa: F401, F811
"""The stage on real Spark: MariaDB's and MySQL's changes arrive in the topic once, whatever is killed on the way."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.capturing import (
    MARIADB,
    MYSQL,
    database,
    mariadb,
    mysql,
    played_back,
    selected,
    server,
    settings_of,
    values,
)
from tests.pipeline.mariadb import MariaDb
from tests.pipeline.test_cdc_changes import TABLE, changes, in_order

from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.stage import MySqlSource
from ottla.pipeline.stage import Context

ONCE = {"availableNow": True}
WAIT_S = 60.0


def make_topic(context: Context, topic: str, partitions: int = 3) -> None:
    admin = AdminClient(context.cluster.client_config())
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def committed_records(context: Context, topic: str) -> list[Record]:
    """All committed records; those of one key in their order."""
    consumer = Consumer(
        context.cluster.client_config(
            **{
                "group.id": f"reads-{topic}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
    )
    records, ended = [], set()
    consumer.subscribe([topic])
    partitions = len(consumer.list_topics(topic).topics[topic].partitions)
    until = time.monotonic() + WAIT_S
    while len(ended) < partitions:
        assert time.monotonic() < until
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            records.append(Record(topic, message.key(), message.value()))
    consumer.close()
    return records


def wait_until(holds: Callable[[], bool], query: Any) -> None:
    until = time.monotonic() + WAIT_S
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)


def source(context: Context, server: MariaDb, database: str, topic: str, **more: Any) -> MySqlSource:
    settings = settings_of(server, tables=(f"{database}.*",), topic=topic, **more)
    return MySqlSource("orders", settings, context)


@MARIADB
def test_snapshot_changes_and_kills_arrive_once(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    server.run(TABLE.format(database, "orders"), *changes(database, "orders", 50, 1))
    stage = source(context, server, database, topic_name, max_transactions_per_batch=60)
    assert [problem for problem in stage.problems() if not problem.is_warning] == []

    stage.start(spark, ONCE).awaitTermination()
    assert in_order(played_back(committed_records(context, topic_name))["orders"]) == selected(
        server, database, "orders"
    )

    # what concerns the connection may change from one start to the next
    stage = source(context, server, database, topic_name, max_transactions_per_batch=70, retry_s=30.0)
    query = stage.start(spark, {"processingTime": "100 milliseconds"})
    server.run(*changes(database, "orders", 60, 2))
    wait_until(lambda: bool(query.recentProgress), query)
    server.kill()
    server.start()
    server.run(
        f"ALTER TABLE {database}.orders ADD COLUMN note VARCHAR(9) DEFAULT 'x'",
        f"UPDATE {database}.orders SET note = 'y'",
        *changes(database, "orders", 60, 4),
    )
    query.stop()
    stage.start(spark, ONCE).awaitTermination()
    stage.start(spark, ONCE).awaitTermination()

    records = committed_records(context, topic_name)
    assert in_order(played_back(records)["orders"]) == selected(server, database, "orders")
    places = [
        (change["transaction"]["id"], change["transaction"]["total_order"])
        for change in values(records)
        if change["transaction"]
    ]
    assert len(places) == len(set(places))


@MYSQL
def test_a_stage_that_is_started_again_goes_on_where_mysql_was_left(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    server.run(TABLE.format(database, "orders"), *changes(database, "orders", 20, 1))
    stage = source(context, server, database, topic_name, max_transactions_per_batch=40)
    assert [problem for problem in stage.problems() if not problem.is_warning] == []
    stage.start(spark, ONCE).awaitTermination()
    server.run(*changes(database, "orders", 60, 2))
    query = stage.start(spark, {"processingTime": "0 seconds"})
    wait_until(lambda: bool(query.recentProgress), query)
    query.stop()
    stage.start(spark, ONCE).awaitTermination()
    assert in_order(played_back(committed_records(context, topic_name))["orders"]) == selected(
        server, database, "orders"
    )


@MARIADB
def test_a_fault_comes_out_of_spark_as_its_sentence(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    stage = source(context, server, database, topic_name, password="wrong")
    with pytest.raises(
        StreamingQueryException, match="does not accept the user `capture` with this password"
    ):
        stage.start(spark, ONCE).awaitTermination()
