"""Changes of rows as records in Debezium's envelope."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.ingest.cdc.envelope import Change, Order
from ottla.pipeline.ingest.cdc.mysql.source_info import BinlogSourceInfo

SOURCE = BinlogSourceInfo(
    "mariadb",
    name="shop",
    ts_ms=5000,
    db="d",
    table="t",
    server_id=1,
    gtid="0-1-7",
    file="binlog.1",
    pos=4,
)
FIELDS_OF_SOURCE = [
    "version",
    "connector",
    "name",
    "ts_ms",
    "snapshot",
    "db",
    "table",
    "server_id",
    "gtid",
    "file",
    "pos",
    "row",
    "thread",
    "query",
]
VALUES = (
    st.none() | st.integers() | st.text() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
)
ROWS = st.dictionaries(st.text(min_size=1), VALUES, min_size=1)


def change(key: tuple[str, ...] = ("id",), row: int = 0) -> Change:
    return Change("topic", key, SOURCE, row, Order("0-1-7"))


def value(data: bytes | None) -> dict[str, Any]:
    assert data is not None
    parsed: dict[str, Any] = json.loads(data)
    return parsed


def test_an_insert_has_the_fields_of_debezium_in_their_order() -> None:
    (record,) = change(row=3).inserted({"id": 1, "name": "ä😀"})
    found = value(record.value)
    assert list(found) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    assert list(found["source"]) == FIELDS_OF_SOURCE
    assert found["source"]["row"] == 3
    assert found["op"] == "c"
    assert found["ts_ms"] == found["source"]["ts_ms"] == 5000
    assert found["transaction"] == {"id": "0-1-7", "total_order": 1, "data_collection_order": 1}
    assert record.key == b'{"id":1}'


@examples()
@given(ROWS)
def test_any_row_is_encoded_without_loss(row: dict[str, Any]) -> None:
    record = change(tuple(row)).read(row)
    assert value(record.value)["after"] == row
    assert value(record.key) == row


def test_a_delete_is_followed_by_a_tombstone() -> None:
    deleted, tombstone = change().deleted({"id": 1})
    assert (value(deleted.value)["op"], value(deleted.value)["before"]) == ("d", {"id": 1})
    assert (tombstone.key, tombstone.value) == (b'{"id":1}', None)


def test_without_a_key_there_is_no_tombstone() -> None:
    (deleted,) = change(()).deleted({"id": 1})
    assert deleted.key is None


def test_an_update_has_the_row_before_and_after() -> None:
    (updated,) = change().updated({"id": 1, "a": 1}, {"id": 1, "a": 2})
    found = value(updated.value)
    assert (found["op"], found["before"]["a"], found["after"]["a"]) == ("u", 1, 2)


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    records = list(change().updated({"id": 1}, {"id": 2}))
    assert [record.key for record in records] == [b'{"id":1}', b'{"id":1}', b'{"id":2}']
    assert [record.value and value(record.value)["op"] for record in records] == ["d", None, "c"]
    orders = [value(record.value)["transaction"]["total_order"] for record in records if record.value]
    assert orders == [1, 2]


def test_order_counts_over_all_tables_and_in_each() -> None:
    order = Order("x")
    found = [json.loads(order.next(table)) for table in ("d.a", "d.b", "d.a")]
    assert [(t["total_order"], t["data_collection_order"]) for t in found] == [(1, 1), (2, 1), (3, 2)]


def test_a_truncate_has_no_key_and_no_rows() -> None:
    record = change().truncated()
    found = value(record.value)
    assert (record.key, found["op"], found["before"], found["after"]) == (None, "t", None, None)
