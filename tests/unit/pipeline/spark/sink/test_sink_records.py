"""Sink: Arrow rows become the arguments of the producer."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.records import produce_arguments, record_bytes

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arguments(
    to: str | None = "t", /, *, keep_timestamps: bool = False, **columns: pa.Array
) -> list[tuple[object, ...]]:
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return list(produce_arguments(rows, to, keep_timestamps=keep_timestamps))


def test_a_plain_row_is_topic_value_and_key() -> None:
    rows = arguments(value=pa.array([b"a", None]), key=pa.array(["k", None]))
    assert rows == [("t", b"a", "k"), ("t", None, None)]


def test_the_bytes_of_records_are_those_of_keys_values_and_headers() -> None:
    headers = [[{"key": "n", "value": b"12"}, {"key": "\u00fc", "value": None}], None, []]
    columns = {
        "key": pa.array(["k", None, "\u00fc"]),
        "value": pa.array([b"abc", b"", None]),
        "headers": pa.array(headers, HEADERS),
        "topic": pa.array(["not counted"] * 3),
    }
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    assert record_bytes(rows) == (1 + 2) + 3 + (1 + 2 + 2)
    assert record_bytes(rows.slice(1)) == 2
    assert record_bytes(rows.slice(3)) == 0
    nulls = pa.RecordBatch.from_arrays([pa.nulls(2), pa.array(["a", "b"])], names=["key", "value"])
    assert record_bytes(nulls) == 2


def test_without_a_key_column_there_is_no_key() -> None:
    assert arguments(value=pa.array([b"a"])) == [("t", b"a", None)]


def test_the_option_topic_wins_over_the_column() -> None:
    columns = {"value": pa.array([b"a"]), "topic": pa.array(["column"])}
    assert arguments("option", **columns) == [("option", b"a", None)]
    assert arguments(None, **columns) == [("column", b"a", None)]


def test_a_row_without_a_topic_is_rejected() -> None:
    with pytest.raises(PipelineError, match="`topic` is null"):
        arguments(None, value=pa.array([b"a"]), topic=pa.array([None], pa.string()))


def test_a_null_partition_is_left_to_the_producer() -> None:
    rows = arguments(value=pa.array([b"a", b"b"]), partition=pa.array([3, None], pa.int32()))
    assert [row[3] for row in rows] == [3, -1]


def test_a_partition_below_zero_is_rejected() -> None:
    with pytest.raises(PipelineError, match="has the partition -2"):
        arguments(value=pa.array([b"a"]), partition=pa.array([-2], pa.int32()))


def test_timestamps_are_kept_with_the_option() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
    column = pa.array([moment, None], pa.timestamp("us", tz="UTC"))
    values = pa.array([b"a", b"b"])
    assert arguments(value=values, timestamp=column) == [("t", b"a", None), ("t", b"b", None)]
    kept = arguments(value=values, timestamp=column, keep_timestamps=True)
    assert [row[6] for row in kept] == [int(moment.timestamp() * 1000), 0]


def test_a_timestamp_before_1970_is_rejected() -> None:
    column = pa.array([-1], pa.timestamp("us", tz="UTC"))
    with pytest.raises(PipelineError, match="before 1970"):
        arguments(value=pa.array([b"a"]), timestamp=column, keep_timestamps=True)


def test_rows_without_headers_have_no_further_arguments() -> None:
    assert arguments(value=pa.array([b"a", b"b"]), headers=pa.array([[], None], HEADERS)) == [
        ("t", b"a", None),
        ("t", b"b", None),
    ]


header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
rows_of_headers = st.lists(st.none() | st.lists(header, max_size=3), min_size=1, max_size=6)


@given(rows_of_headers, st.integers(0, 3))
def test_headers_stay_with_their_rows_also_in_a_slice(
    lists: list[list[dict[str, object]] | None], skipped: int
) -> None:
    column = pa.array(lists, HEADERS)[skipped:]
    rows = arguments(value=pa.array([b"v"] * len(column)), headers=column)
    found = [row[7] if len(row) > 7 else None for row in rows]
    assert found == [[(pair["key"], pair["value"]) for pair in row or []] or None for row in lists[skipped:]]
