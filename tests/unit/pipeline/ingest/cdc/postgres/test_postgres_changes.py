"""PostgreSQL's messages of logical decoding, from bytes that are built here, and its values."""

import datetime
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.ingest.cdc.postgres import pgoutput, values
from ottla.pipeline.ingest.cdc.postgres.changes import PgoutputDecoder
from ottla.pipeline.ingest.cdc.postgres.lsn import format_lsn, parse_lsn
from ottla.pipeline.ingest.cdc.postgres.settings import (
    PostgresCapture,
    PostgresSettings,
    postgres_capture,
    slot_name,
)

INT, TEXT = 23, 25


def capture() -> PostgresCapture:
    settings = PostgresSettings(host="h", database="d", user="u", tables=("public.*",), topic="raw")
    return postgres_capture(settings, "pg", "p.pg", "/state")


def relation(oid: int, name: str, identity: str = "d", schema: str = "public") -> bytes:
    columns = struct.pack(">b", 1) + b"id\0" + struct.pack(">Ii", INT, -1)
    columns += struct.pack(">b", int(identity == "f")) + b"v\0" + struct.pack(">Ii", TEXT, -1)
    return (
        b"R" + struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0" + identity.encode()
    ) + (struct.pack(">h", 2) + columns)


def fields(*values: str | pgoutput.Unchanged | None) -> bytes:
    data = struct.pack(">h", len(values))
    for value in values:
        if value is None:
            data += b"n"
        elif isinstance(value, pgoutput.Unchanged):
            data += b"u"
        else:
            data += b"t" + struct.pack(">i", len(value.encode())) + value.encode()
    return data


def begin(lsn: int, transaction: int = 7) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 5_000_000, transaction)


def insert(oid: int, *values: str | None) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + fields(*values)


def records(*messages: bytes, start: int = 0, end: int = 1000) -> list[tuple[bytes | None, Any]]:
    decoder = PgoutputDecoder(capture(), start, end, lambda _: ("id",))
    decoded = []
    for data in messages:
        message = pgoutput.parse(data)
        assert message is not None
        decoded += [
            (record.key, record.value and json.loads(record.value)) for record in decoder.decode(message)
        ]
    return decoded


def test_a_transaction_belongs_to_the_batch_in_which_its_commit_lies() -> None:
    messages = [begin(10), relation(1, "t"), insert(1, "1", "a"), begin(20), insert(1, "2", "b")]
    assert [key for key, _ in records(*messages, start=10, end=20)] == [b'{"id":1}']
    assert [key for key, _ in records(*messages, start=11, end=21)] == [b'{"id":2}']


def test_tables_that_are_not_captured_give_nothing() -> None:
    assert records(begin(1), relation(1, "t", schema="private"), insert(1, "1", "a")) == []


@examples()
@given(st.lists(st.tuples(st.integers(), st.none() | st.text(st.characters(codec="utf-8"))), min_size=1))
def test_rows_are_decoded_without_loss(rows: list[tuple[int, str | None]]) -> None:
    inserts = [insert(1, str(number), text) for number, text in rows]
    found = [value["after"] for _, value in records(begin(1), relation(1, "t"), *inserts)]
    assert found == [{"id": number, "v": text} for number, text in rows]


def test_the_time_of_a_transaction_counts_from_2000() -> None:
    ((_, value),) = records(begin(1), relation(1, "t"), insert(1, "1", "a"))
    assert value["ts_ms"] == 946_684_805_000
    assert value["transaction"] == {"id": "7:1", "total_order": 1, "data_collection_order": 1}


def test_an_update_without_the_old_row_has_no_before() -> None:
    update = b"U" + struct.pack(">I", 1) + b"N" + fields("1", "b")
    ((key, value),) = records(begin(1), relation(1, "t"), update)
    assert (key, value["before"], value["after"]["v"]) == (b'{"id":1}', None, "b")


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    update = b"U" + struct.pack(">I", 1) + b"K" + fields("1", None) + b"N" + fields("2", "b")
    found = records(begin(1), relation(1, "t"), update)
    assert [(key, value and value["op"]) for key, value in found] == [
        (b'{"id":1}', "d"),
        (b'{"id":1}', None),
        (b'{"id":2}', "c"),
    ]


def test_a_value_that_is_not_sent_is_the_old_one_only_if_the_old_row_is_complete() -> None:
    tail = b"N" + fields("1", pgoutput.UNCHANGED)
    whole = b"U" + struct.pack(">I", 1) + b"O" + fields("1", "old") + tail
    ((_, value),) = records(begin(1), relation(1, "t", identity="f"), whole)
    assert value["after"]["v"] == "old"
    ((_, value),) = records(begin(1), relation(1, "t"), b"U" + struct.pack(">I", 1) + tail)
    assert value["after"]["v"] == "__debezium_unavailable_value"


def test_a_truncate_gives_a_record_for_each_table() -> None:
    both = b"T" + struct.pack(">ibII", 2, 0, 1, 2)
    found = records(begin(1), relation(1, "a"), relation(2, "b"), both)
    assert [(value["op"], value["source"]["table"]) for _, value in found] == [("t", "a"), ("t", "b")]


def test_other_messages_are_ignored() -> None:
    assert pgoutput.parse(b"O" + bytes(8) + b"origin\0") is None


@examples()
@given(st.integers(0, 2**64 - 1))
def test_an_lsn_is_parsed_as_it_was_formatted(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@examples()
@given(st.datetimes())
def test_timestamps_are_microseconds(time: datetime.datetime) -> None:
    text = f"{time.isoformat(sep=' ')}"
    expected = (time - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    assert values.convert_timestamp(text) == expected


@pytest.mark.parametrize("text", ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"])
def test_dates_beyond_the_calendar_stay_text(text: str) -> None:
    assert values.convert_date(text) == text


def test_names_of_slots_are_valid_and_differ() -> None:
    names = {slot_name(identity) for identity in ("Prod.orders", "prod.orders", "x" * 200, "ä.ö")}
    assert len(names) == 4
    assert all(len(name) <= 63 and name.replace("_", "").isalnum() and name.islower() for name in names)
