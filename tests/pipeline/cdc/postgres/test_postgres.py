"""The captured changes of a real PostgreSQL: each once, the same when read again, and as documented."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxBytes
from tests.pipeline.cdc.batches import ONCE, Batches, apply_changes, committed_records, envelopes, make_topic
from tests.pipeline.cdc.postgres.postgres_server import ADMIN, PASSWORD, Postgres, why_no_postgres

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.cdc.postgres.changes import read_changes
from ottla.pipeline.ingest.cdc.postgres.checks import check_capture
from ottla.pipeline.ingest.cdc.postgres.lsn import parse_lsn
from ottla.pipeline.ingest.cdc.postgres.server import end_of_log
from ottla.pipeline.ingest.cdc.postgres.settings import (
    PostgresCapture,
    PostgresSettings,
    postgres_capture,
)
from ottla.pipeline.ingest.cdc.postgres.stage import PostgresSource
from ottla.pipeline.stage import Context

LIMITED = ReadMaxBytes(1)  # the limit's number is the setting's: max_wal_mb_per_batch
# Type, literal, and the value in a record.
EXAMPLES: list[tuple[str, str, Any]] = [
    ("smallint", "-32768", -32768),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("numeric", "'-123.4500'", "-123.4500"),
    ("numeric", "'NaN'", "NaN"),
    ("real", "3.14", 3.14),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("boolean", "true", True),
    ("text", "'😀 ü \"'", '😀 ü "'),
    ("char(4)", "'ab'", "ab  "),
    ("bytea", "'\\x00ff'", "AP8="),
    ("date", "'1000-01-01'", -354285),
    ("date", "'infinity'", "infinity"),
    ("time", "'12:34:56.7'", 45296700000),
    ("timestamp", "'1969-12-31 23:59:59.5'", -500000),
    ("timestamptz", "'2020-06-01 02:00:00.12+02'", "2020-06-01T00:00:00.12Z"),
    ("interval", "'1 day 2 hours'", "P1DT2H"),
    ("jsonb", "'{\"a\": [1, null]}'", '{"a": [1, null]}'),
    ("uuid", "'164fad29-e105-11f1-b0a9-02fc00000000'", "164fad29-e105-11f1-b0a9-02fc00000000"),
    ("int[]", "'{1,2,NULL}'", "{1,2,NULL}"),
    ("int", "NULL", None),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    if why_no_postgres():
        pytest.skip(why_no_postgres())
    made = Postgres()
    try:
        made.create()
        made.start()
        yield made
    finally:
        made.remove()


@pytest.fixture
def schema(server: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"s_{abs(hash(request.node.nodeid)) % 10**12}"
    server.run(f"CREATE SCHEMA {name}")
    yield name
    server.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def settings_of(server: Postgres, schema: str, **more: Any) -> PostgresSettings:
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": server.port,
        "database": "postgres",
        "user": ADMIN,
        "password": PASSWORD,
        "tables": (f"{schema}.*",),
        "topic": "raw",
        "retry_s": 20.0,
    }
    return PostgresSettings(**{**fields, **more})


def capture_of(server: Postgres, schema: str, folder: Path, **more: Any) -> PostgresCapture:
    state = str(folder / "checkpoint" / "cdc")
    return postgres_capture(settings_of(server, schema, **more), "orders", f"tests.{schema}", state)


def select_rows(server: Postgres, table: str) -> list[tuple[Any, ...]]:
    return server.run(f"SELECT id, name FROM {table} ORDER BY id")


def sorted_rows(table: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"]) for row in table.values())


def workload(schema: str, first: int) -> list[str]:
    orders = f"{schema}.orders"
    return [
        f"INSERT INTO {orders} SELECT i, 'ä' || i FROM generate_series({first}, {first + 60}) i",
        f"UPDATE {orders} SET name = name || 'x' WHERE id % 3 = 0",
        f"UPDATE {orders} SET id = id + 1000000 WHERE id % 7 = 0 AND id < 1000000",
        f"DELETE FROM {orders} WHERE id % 5 = 0",
    ]


def test_the_snapshot_and_the_changes_give_the_table_while_others_write(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)", *workload(schema, 1))
    statements = [statement for at in range(1, 20) for statement in workload(schema, at * 100)]
    writer = threading.Thread(target=lambda: server.run(*statements))
    writer.start()
    batches = Batches(capture_of(server, schema, tmp_path))
    records = batches.next()
    writer.join()
    records += batches.all(LIMITED)
    server.run(f"ALTER TABLE {schema}.orders ADD COLUMN more int", *workload(schema, 5000))
    records += batches.all(LIMITED)
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, f"{schema}.orders")


def test_a_transaction_that_stays_open_delays_no_batch(server: Postgres, schema: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)")
    batches = Batches(capture_of(server, schema, tmp_path, retry_s=0))
    batches.next()
    with closing(server.connect()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        for at in range(1, 6):
            cursor.execute(f"INSERT INTO {schema}.orders VALUES ({at}, 'not committed yet')")
            assert batches.all() == []
        cursor.execute("COMMIT")
    assert [value["after"]["id"] for value in envelopes(batches.all())] == [1, 2, 3, 4, 5]
    # The query writes nothing if the log is flushed: otherwise every batch would make another one.
    # (The server itself writes to the log now and then.)
    assert any(end_of_log(batches.capture) == end_of_log(batches.capture) for _ in range(3))


def test_a_batch_read_again_gives_the_same_records_also_after_a_kill(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)")
    batches = Batches(capture_of(server, schema, tmp_path))
    batches.next()
    assert batches.offset is not None
    start = batches.offset
    server.run(*workload(schema, 1), *workload(schema, 100), f"TRUNCATE {schema}.orders")
    records = batches.next()
    assert envelopes(records)[-1]["op"] == "t"
    reading = read_changes(batches.capture, lsn_of(start), lsn_of(batches.offset))
    part = [next(reading) for _ in range(len(records) // 2)]
    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    part += reading
    starter.join()
    assert part == records == Batches(batches.capture).read(start, batches.offset)


def lsn_of(offset: dict[str, Any]) -> int:
    return parse_lsn(offset["lsn"])


def test_the_slot_advances_only_when_a_batch_is_committed(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)")
    batches = Batches(capture_of(server, schema, tmp_path))
    batches.next()

    def confirmed() -> int:
        slots = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{}'"
        return parse_lsn(server.run(slots.format(batches.capture.slot))[0][0])

    before = confirmed()
    server.run(*workload(schema, 1))
    batches.next()
    assert batches.offset is not None
    assert confirmed() == before
    batches.reader.commit(batches.offset)
    assert before < confirmed() <= lsn_of(batches.offset)


def test_values_are_as_documented_from_the_snapshot_and_from_the_log(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    columns = ", ".join(f"c{index} {kind}" for index, (kind, _, _) in enumerate(EXAMPLES))
    insert = f"INSERT INTO {schema}.types VALUES (1, {', '.join(literal for _, literal, _ in EXAMPLES)})"
    server.run(f"CREATE TABLE {schema}.types (id int PRIMARY KEY, {columns})", insert)
    server.run(f"ALTER TABLE {schema}.types REPLICA IDENTITY FULL")
    batches = Batches(capture_of(server, schema, tmp_path))
    snapshot = batches.next()
    server.run(f"DELETE FROM {schema}.types", insert)
    deleted, inserted = envelopes(changed := batches.next())
    expected = {"id": 1, **{f"c{index}": value for index, (_, _, value) in enumerate(EXAMPLES)}}
    assert envelopes(snapshot)[0]["after"] == deleted["before"] == inserted["after"] == expected
    assert {record.key for record in snapshot + changed} == {b'{"id":1}'}


def test_a_large_value_that_did_not_change_is_kept_or_marked_as_unavailable(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    server.run(
        f"CREATE TABLE {schema}.large (id int PRIMARY KEY, n int, big text)",
        f"INSERT INTO {schema}.large SELECT 1, 1, string_agg(md5(i::text), '') FROM generate_series(1, 2000) i",
    )
    batches = Batches(capture_of(server, schema, tmp_path))
    batches.next()
    server.run(
        f"UPDATE {schema}.large SET n = 2",
        f"ALTER TABLE {schema}.large REPLICA IDENTITY FULL",
        f"UPDATE {schema}.large SET n = 3",
    )
    missing, kept = envelopes(batches.next())
    assert missing["after"]["big"] == "__debezium_unavailable_value"
    assert len(kept["after"]["big"]) == 64_000


def test_errors_are_reported_before_the_start(
    server: Postgres, schema: str, tmp_path: Path, context: Context
) -> None:
    server.run(
        f"CREATE TABLE {schema}.keyless (a int)",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'reader'",
    )
    known = replace(context, topics=frozenset({"raw"}))
    for changed, message in (
        ({"password": "wrong"}, "does not accept the user `admin`"),
        ({"port": 1}, "cannot be reached"),
        ({"database": "nothing"}, 'database "nothing" does not exist'),
        ({"user": "reader", "password": "reader"}, "user `reader` may not replicate"),
        ({"topic": "{db}"}, f"The topic {schema} does not exist"),
        ({}, r"keyless has no primary key"),
    ):
        capture = capture_of(server, schema, tmp_path, **changed)
        found = "\n".join(f"{p.what} {p.remedy}" for p in check_capture(capture, "here", known))
        assert re.search(message, found), found


def test_a_dropped_slot_stops_the_source_with_a_remedy(server: Postgres, schema: str, tmp_path: Path) -> None:
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)")
    batches = Batches(capture_of(server, schema, tmp_path))
    batches.next()
    server.run(f"SELECT pg_drop_replication_slot('{batches.capture.slot}')")
    with pytest.raises(PipelineError, match=r"slot .* no longer exists.*new snapshot"):
        batches.next()


def test_a_server_that_cannot_be_reached_is_an_error_that_may_pass(
    server: Postgres, schema: str, tmp_path: Path
) -> None:
    capture = capture_of(server, schema, tmp_path, port=1, retry_s=0.1)
    with pytest.raises(RetriableError, match="cannot be reached"):
        end_of_log(capture)


def test_changes_arrive_once_through_spark(
    spark: SparkSession, context: Context, topic_name: str, server: Postgres, schema: str
) -> None:
    make_topic(context, topic_name)
    server.run(f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, name text)", *workload(schema, 1))
    stage = PostgresSource("orders", settings_of(server, schema, topic=topic_name), context)
    assert list(stage.check()) == []
    stage.start(spark, ONCE).awaitTermination()
    server.run(*workload(schema, 100))
    stage.start(spark, ONCE).awaitTermination()
    stage.start(spark, ONCE).awaitTermination()
    records = committed_records(context, topic_name)
    assert sorted_rows(apply_changes(records)["orders"]) == select_rows(server, f"{schema}.orders")
