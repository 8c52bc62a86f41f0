"""The ready parts of transforms on plain rows: what they make of good records, and what they say of bad ones."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.transform.columns import with_origin
from ottla.pipeline.transform.dead_letters import Output, as_records
from ottla.pipeline.transform.parts import (
    flatten,
    guard,
    keep,
    parse_csv,
    parse_debezium,
    parse_json,
    reject,
    route,
    write_json,
)

TOPIC_ROWS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ORDER = "id long, amount double, customer struct<name:string,age:int>"


def raw_rows(spark: SparkSession, values: Sequence[bytes | None], headers: Any = None) -> DataFrame:
    rows = [(b"k%d" % n, value, "raw", 0, n, AT, 0, headers) for n, value in enumerate(values)]
    return with_origin(spark.createDataFrame(rows, TOPIC_ROWS))


def collected(rows: DataFrame, *columns: str) -> list[Row]:
    return rows.select(*columns).collect()


def errors(rows: DataFrame) -> list[str | None]:
    return [row[0] for row in collected(rows, "_error")]


def test_json_that_fits_becomes_columns_and_unknown_fields_are_left_out(spark: SparkSession) -> None:
    raw = raw_rows(
        spark, [b'{"id": 1, "amount": 2.5, "customer": {"name": "A\xc3\xa9"}, "new": [1]}', b'{"id": 2}']
    )
    rows = collected(parse_json(raw, ORDER), "data", "_error")
    assert rows[0].data.asDict(recursive=True) == {
        "id": 1,
        "amount": 2.5,
        "customer": {"name": "Aé", "age": None},
    }
    assert rows[1].data.id == 2
    assert [row._error for row in rows] == [None, None]


def test_each_record_that_is_not_json_of_the_schema_is_marked_with_what_is_wrong(spark: SparkSession) -> None:
    cases = {
        b"nope": "not a JSON object of the schema: nope",
        b"": "empty, where JSON was expected",
        b'\xff{"id": 1}': "not UTF-8",
        b"[]": "not a JSON object of the schema: []",
        b"null": "not a JSON object of the schema: null",
        b'"text"': 'not a JSON object of the schema: "text"',
        b'{"id": "x"}': "`id` is not bigint: x",
        b'{"id": 1, "amount": "7"}': "`amount` is not double: 7",
        b'{"id": 1, "customer": 5}': "`customer` is not struct<name:string,age:int>: 5",
        b'{"id": 1, "customer": {"age": "old"}}': "`customer.age` is not int: old",
        b'{"id": 1}{"id": 2}': 'not one JSON object: {"id": 1}{"id": 2}',
        b'{"id": 1} rest': 'not one JSON object: {"id": 1} rest',
        b'{"id": 1}]': 'not one JSON object: {"id": 1}]',
        b"x" * 100: "not a JSON object of the schema: " + "x" * 60 + "...",
    }
    assert dict(zip(cases, errors(parse_json(raw_rows(spark, list(cases)), ORDER)), strict=True)) == cases


def test_a_tombstone_stays_one_through_json(spark: SparkSession) -> None:
    rows = write_json(parse_json(raw_rows(spark, [None]), ORDER, required=["id"]), "data")
    assert collected(rows, "value", "_error") == [Row(value=None, _error=None)]


def test_a_missing_required_field_is_named_and_the_first_reason_stays(spark: SparkSession) -> None:
    values = [
        b"{}",
        b'{"id": null, "amount": 1}',
        b'{"id": 1, "amount": 1}',
        b"nope",
        b'{"id": 1, "amount": 2}',
    ]
    rows = parse_json(raw_rows(spark, values), ORDER, required=["id", "customer.name"])
    assert errors(reject(rows, "true", "later")) == [
        "the required field `id` is missing",
        "the required field `id` is missing",
        "the required field `customer.name` is missing",
        "not a JSON object of the schema: nope",
        "the required field `customer.name` is missing",
    ]


def test_fields_that_are_not_in_the_schema_can_be_kept(spark: SparkSession) -> None:
    raw = raw_rows(spark, [b'{"id": 1, "colour": "red", "tags": ["a"], "n": 3}', b'{"id": 2}'])
    rows = collected(parse_json(raw, "id long", rest="more"), "more")
    assert [row.more for row in rows] == [{"colour": "red", "tags": '["a"]', "n": "3"}, {}]


def test_csv_lines_become_columns_and_wrong_ones_are_marked(spark: SparkSession) -> None:
    values = [b'1;"a;b";2026-03-01', b"1;a", b"1;a;2026-03-01;x", b"one;a;2026-03-01", b" ", b"\xff;a;", None]
    rows = parse_csv(raw_rows(spark, values), "id int, name string, day date", options={"sep": ";"})
    assert collected(rows, "data.name")[0].name == "a;b"
    assert errors(rows) == [
        None,
        "not a CSV line of these 3 fields: 1;a",
        "not a CSV line of these 3 fields: 1;a;2026-03-01;x",
        "not a CSV line of these 3 fields: one;a;2026-03-01",
        "empty, where a CSV line was expected",
        "not UTF-8",
        None,
    ]


def change(op: str | None, before: Any = None, after: Any = None, **more: Any) -> bytes:
    source = {"connector": "mysql", "db": "shop", "table": "orders", "snapshot": "false", "gtid": "0-1-7"}
    return json.dumps(
        {"before": before, "after": after, "op": op, "ts_ms": 1772366400123, "source": source, **more}
    ).encode()


def test_debezium_events_become_rows_with_op_before_after_and_time(spark: SparkSession) -> None:
    one, two = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    wrapped = b'{"schema": {}, "payload": ' + change("r", after=one) + b"}"
    values = [
        change("c", after=one),
        change("u", one, two),
        change("d", two),
        None,
        wrapped,
        change("t", ts_ms=2**62),
    ]
    rows = collected(parse_debezium(raw_rows(spark, values), "id int, name string"), "change", "_error")
    assert [row._error for row in rows] == [None] * 6
    assert [row.change and (row.change.op, row.change.row and row.change.row.name) for row in rows] == [
        ("c", "a"),
        ("u", "b"),
        ("d", "b"),
        None,
        ("r", "a"),
        ("t", None),
    ]
    assert rows[1].change.before.name == "a"
    assert rows[5].change.ts is None
    assert rows[0].change.source.gtid == "0-1-7"
    assert rows[0].change.ts == datetime(2026, 3, 1, 12, 0, 0, 123000)


def test_a_record_that_is_not_a_debezium_event_is_marked(spark: SparkSession) -> None:
    values = [
        change(None),
        change("x"),
        change("c"),
        change("d"),
        b'{"id": 1}',
        change("c", after={"id": "a"}),
    ]
    assert errors(parse_debezium(raw_rows(spark, values), "id int")) == [
        "no Debezium event: it has no `op`",
        "no Debezium event: its `op` is x",
        "a change without the row `after` it",
        "a delete without the row `before` it",
        "no Debezium event: it has no `op`",
        "`after.id` is not int: a",
    ]


def test_keep_leaves_marked_rows_where_a_plain_filter_would_lose_them(spark: SparkSession) -> None:
    raw = raw_rows(spark, [b'{"id": 1, "amount": 5}', b'{"id": 2, "amount": 0}', b"nope", b'{"id": 3}'])
    rows = keep(parse_json(raw, ORDER), "data.amount > 0")
    assert [row.offset for row in collected(rows, "offset")] == [0, 2]


def test_flatten_makes_one_level_of_nested_structs(spark: SparkSession) -> None:
    raw = raw_rows(spark, [b'{"id": 1, "customer": {"name": "a", "age": 3}}', None])
    rows = collected(flatten(parse_json(raw, ORDER)), "data")
    assert rows[0].data.asDict() == {"id": 1, "amount": None, "customer_name": "a", "customer_age": 3}
    assert rows[1].data is None
    with pytest.raises(PipelineError, match="column `value` is binary"):
        flatten(raw, "value")


def test_a_python_function_that_raises_or_returns_a_wrong_type_marks_its_record(spark: SparkSession) -> None:
    def half(value: bytes) -> Any:
        return {"half": int(value) // 2} if value != b"odd type" else {"half": "no number"}

    rows = guard(raw_rows(spark, [b"4", b"x", b"odd type"]), half, "struct<half:long>")
    found = collected(rows, "data", "_error")
    assert found[0].data.half == 2
    assert [row.data for row in found[1:]] == [None, None]
    assert found[1]._error.startswith("ValueError: invalid literal for int()")
    assert "no number" in found[2]._error
    again = guard(rows, half, "struct<half:long>", into="again")
    assert errors(again) == [row._error for row in found]


ENDING = Output("clean", ("raw",), "orders", "orders-dead")


def test_a_dead_letter_is_the_record_byte_for_byte_with_its_reason_and_origin(spark: SparkSession) -> None:
    headers = [("trace", b"\x00\xff"), ("trace", None), ("origin.topic", b"before")]
    raw = raw_rows(spark, [b"\xff\x00"], headers)
    [record] = as_records(parse_json(raw, ORDER).drop("key").withColumn("key", F.lit("x")), ENDING).collect()
    assert (record.topic, bytes(record.key), bytes(record.value)) == ("orders-dead", b"k0", b"\xff\x00")
    assert [(header.key, header.value and bytes(header.value)) for header in record.headers] == [
        *headers,
        ("error.reason", b"not UTF-8"),
        ("error.stage", b"clean"),
        ("origin.topic", b"raw"),
        ("origin.partition", b"0"),
        ("origin.offset", b"0"),
        ("origin.timestamp", b"1772366400000"),
    ]


def test_a_good_record_goes_to_its_topic_with_its_own_origin_only(spark: SparkSession) -> None:
    raw = raw_rows(
        spark, [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}'], [("origin.topic", b"before"), ("h", b"1")]
    )
    rows = route(
        write_json(parse_json(raw, ORDER), "data"),
        "case when data.id = 2 then 'two' when data.id = 3 then 'raw' end",
    )
    records = as_records(rows, ENDING).collect()
    assert [record.topic for record in records] == ["orders", "two", "orders"]
    assert [header.key for header in records[0].headers] == [
        "h",
        *(f"origin.{name}" for name in ("topic", "partition", "offset", "timestamp")),
    ]
    plain = as_records(rows, ENDING._replace(origin_headers=False)).collect()
    assert [header.key for header in plain[0].headers] == ["origin.topic", "h"]


def test_without_dead_letters_the_error_names_the_record(spark: SparkSession) -> None:
    rows = as_records(
        parse_json(raw_rows(spark, [b'{"id": 1}', b"nope"]), ORDER), ENDING._replace(dead_letters="")
    )
    with pytest.raises(Exception, match="rejects the record of topic raw, partition 0, offset 1: not a JSON"):
        rows.collect()


def test_wrong_columns_are_named_before_anything_starts(spark: SparkSession) -> None:
    raw = raw_rows(spark, [])
    for rows, said in (
        (raw.select("key"), "without a column `value`; they have: key"),
        (parse_json(raw, ORDER).withColumn("value", F.col("data")), "`value` as struct<id"),
        (raw.withColumn("key", F.lit(1)), "`key` as int"),
        (raw.withColumn("headers", F.lit("h")), "`headers` as string"),
        (raw.drop("_origin"), "`_error` without `_origin`"),
    ):
        with pytest.raises(PipelineError, match="The transform clean returned") as raised:
            as_records(rows, ENDING)
        assert said in str(raised.value)
    with pytest.raises(PipelineError, match="The schema 'id lng' cannot be read"):
        parse_json(raw, "id lng")
