"""The stage on real Spark: the changes of MariaDB and MySQL arrive in the topic once, even if the server is killed."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.pipeline.cdc.batches import ONCE, WAIT_S, apply_changes, committed_records, envelopes, make_topic
from tests.pipeline.cdc.mysql.captures import (
    MARIADB,
    MYSQL,
    TABLE,
    random_changes,
    select_rows,
    settings_of,
    sorted_rows,
)
from tests.pipeline.cdc.mysql.mariadb_server import MariaDb

from ottla.pipeline.ingest.cdc.mysql.stage import MySqlSource
from ottla.pipeline.stage import Context


def wait_until(condition: Callable[[], bool], query: Any) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.05)


def source(context: Context, server: MariaDb, database: str, topic: str, **more: Any) -> MySqlSource:
    settings = settings_of(server, tables=(f"{database}.*",), topic=topic, **more)
    return MySqlSource("orders", settings, context)


@MARIADB
def test_the_snapshot_and_the_changes_arrive_once_when_the_server_is_killed(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 50, 1))
    stage = source(context, server, database, topic_name, max_transactions_per_batch=60)
    assert [finding for finding in stage.check() if not finding.is_warning] == []

    stage.start(spark, ONCE).awaitTermination()
    assert sorted_rows(apply_changes(committed_records(context, topic_name))["orders"]) == select_rows(
        server, database, "orders"
    )

    # what concerns the connection may change from one start to the next
    stage = source(context, server, database, topic_name, max_transactions_per_batch=70, retry_s=30.0)
    query = stage.start(spark, {"processingTime": "100 milliseconds"})
    server.run(*random_changes(database, "orders", 60, 2))
    wait_until(lambda: bool(query.recentProgress), query)
    server.kill()
    server.start()
    server.run(
        f"ALTER TABLE {database}.orders ADD COLUMN note VARCHAR(9) DEFAULT 'x'",
        f"UPDATE {database}.orders SET note = 'y'",
        *random_changes(database, "orders", 60, 4),
    )
    query.stop()
    stage.start(spark, ONCE).awaitTermination()
    stage.start(spark, ONCE).awaitTermination()

    records = committed_records(context, topic_name)
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, database, "orders")
    orders = [
        (change["transaction"]["id"], change["transaction"]["total_order"])
        for change in envelopes(records)
        if change["transaction"]
    ]
    assert len(orders) == len(set(orders))


@MYSQL
def test_a_restarted_stage_continues_where_it_stopped(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    server.run(TABLE.format(database, "orders"), *random_changes(database, "orders", 20, 1))
    stage = source(context, server, database, topic_name, max_transactions_per_batch=40)
    assert [finding for finding in stage.check() if not finding.is_warning] == []
    stage.start(spark, ONCE).awaitTermination()
    server.run(*random_changes(database, "orders", 60, 2))
    query = stage.start(spark, {"processingTime": "0 seconds"})
    wait_until(lambda: bool(query.recentProgress), query)
    query.stop()
    stage.start(spark, ONCE).awaitTermination()
    assert sorted_rows(apply_changes(committed_records(context, topic_name))["orders"]) == select_rows(
        server, database, "orders"
    )


@MARIADB
def test_an_error_of_the_database_passes_through_spark_with_its_text(
    spark: SparkSession, context: Context, topic_name: str, server: MariaDb, database: str
) -> None:
    make_topic(context, topic_name)
    stage = source(context, server, database, topic_name, password="wrong")
    with pytest.raises(
        StreamingQueryException, match="does not accept the user `capture` with this password"
    ):
        stage.start(spark, ONCE).awaitTermination()
