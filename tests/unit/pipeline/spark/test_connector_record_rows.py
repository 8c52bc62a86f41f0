"""Record batches become Arrow rows that equal the records, read one by one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.record_rows import CorruptBatch, rows_of, visible_batches, whole_batches
from ottla.pipeline.spark.rows import Extras, arrow_schema
from ottla.records.columns import PADDING
from ottla.records.control import build_control_batch
from ottla.records.markers import EndTransactionMarker
from ottla.records.records import Record, build_batch

ALL = Extras(headers=True, leader_epoch=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
contents = st.builds(
    Record,
    st.just(0),
    st.integers(0, 2**41),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=200),
    headers,
)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[list[Record], int, int]]:
    """Batches with holes between and inside, each with its codec and leader epoch."""
    offset, found = 0, []
    for _ in range(draw(st.sampled_from([1, 2, 30]))):
        records = []
        for _ in range(draw(st.integers(1, 4))):
            offset += draw(st.sampled_from([1, 1, 1, 7]))
            records.append(draw(contents)._replace(offset=offset))
        found.append((records, draw(st.sampled_from([0, 0, 1, 2, 3, 4])), draw(st.integers(-1, 3))))
    return found


def rows(
    data: bytes, wanted: OffsetRange, aborted: Any = (), read_committed: bool = True
) -> list[dict[str, Any]]:
    padded = bytearray(data + PADDING)
    seen = visible_batches(padded, whole_batches(padded, 0, len(data)), aborted, read_committed)
    found = rows_of(padded, seen, wanted, ALL)
    if found is None:
        return []
    found.validate(full=True)
    assert found.schema == arrow_schema(ALL)
    return found.to_pylist()


def expected(record: Record, leader_epoch: int) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        "leaderEpoch": None if leader_epoch < 0 else leader_epoch,
    }


@given(logs(), st.integers(0, 20), st.integers(0, 60))
@examples(80)
def test_rows_equal_the_records_of_the_range(
    log: list[tuple[list[Record], int, int]], start: int, size: int
) -> None:
    data = b"".join(build_batch(records, codec=codec, leader_epoch=epoch) for records, codec, epoch in log)
    found = rows(data, OffsetRange("t", 3, start, start + size))
    assert found == [
        expected(record, epoch)
        for records, _, epoch in log
        for record in records
        if start <= record.offset < start + size
    ]


def test_log_append_time_is_read_from_the_header() -> None:
    records = [Record(0, 1000, None, b"a"), Record(1, 2000, None, b"b")]
    found = rows(build_batch(records, log_append_time_ms=5000), OffsetRange("t", 3, 0, 2))
    assert [(row["timestamp"], row["timestampType"]) for row in found] == [
        (EPOCH + timedelta(seconds=5), 1)
    ] * 2


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 60, 100, 9_000]), st.integers(1, 90)), min_size=1, max_size=6)
)
@examples(40)
def test_a_large_batch_is_walked_whether_its_records_are_of_one_size_or_not(
    runs: list[tuple[int, int]],
) -> None:
    sizes = [size for size, count in runs for _ in range(count)]
    records = [Record(offset, 1000, None, b"v" * size) for offset, size in enumerate(sizes)]
    found = rows(build_batch(records), OffsetRange("t", 3, 0, len(records)))
    assert [(row["offset"], len(row["value"])) for row in found] == list(enumerate(sizes))


def one(offset: int, value: bytes = b"v") -> list[Record]:
    return [Record(offset, 1000, None, value)]


def test_an_incomplete_batch_at_the_end_of_a_response_is_left_out() -> None:
    data = build_batch(one(0)) + build_batch(one(1))[:-1]
    assert [row["offset"] for row in rows(data, OffsetRange("t", 3, 0, 9))] == [0]


def test_a_damaged_batch_is_an_error() -> None:
    data = bytearray(build_batch(one(0)))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC32C"):
        whole_batches(data + PADDING, 0, len(data))


def test_a_header_key_that_is_not_utf8_is_read() -> None:
    record = Record(0, 1000, None, b"v", (("\udcff", b"1"),))
    (row,) = rows(build_batch([record]), OffsetRange("t", 3, 0, 1))
    assert row["headers"] == [{"key": "�", "value": b"1"}]


def transactional(offset: int, producer_id: int) -> bytes:
    return build_batch(
        one(offset), producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    end = EndTransactionMarker(commit, coordinator_epoch=0)
    return build_control_batch(
        [end], base_offset=offset, timestamp=1000, producer_id=producer_id, producer_epoch=0
    )


def test_aborted_records_are_visible_only_with_read_uncommitted() -> None:
    data = b"".join(
        [
            transactional(0, producer_id=7),
            transactional(1, producer_id=8),
            marker(2, producer_id=7, commit=False),
            marker(3, producer_id=8, commit=True),
            transactional(4, producer_id=7),
            marker(5, producer_id=7, commit=True),
        ]
    )
    wanted, aborted = OffsetRange("t", 3, 0, 6), [(7, 0)]
    assert [row["offset"] for row in rows(data, wanted, aborted)] == [1, 4]
    assert [row["offset"] for row in rows(data, wanted, aborted, read_committed=False)] == [0, 1, 4]


def test_batches_without_a_record_in_the_range_give_no_rows() -> None:
    padded = bytearray(build_batch(one(5)) + PADDING)
    assert (
        rows_of(padded, whole_batches(padded, 0, len(padded) - len(PADDING)), OffsetRange("t", 0, 6, 9), ALL)
        is None
    )


def test_optional_columns_are_absent_by_default() -> None:
    padded = bytearray(build_batch(one(5)) + PADDING)
    found = rows_of(
        padded, whole_batches(padded, 0, len(padded) - len(PADDING)), OffsetRange("t", 0, 0, 9), Extras()
    )
    assert isinstance(found, pa.RecordBatch)
    assert found.schema == arrow_schema(Extras())
    assert not {"headers", "leaderEpoch"} & {*found.schema.names}
