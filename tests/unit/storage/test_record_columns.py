"""Record columns hold the same as the records read one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.model.errors import KafkaError
from ottla.records.columns import PADDING, BatchSpan, RecordBuffer
from ottla.records.header import HEADER_SIZE, read_header
from ottla.records.records import Record, build_batch, iter_records
from ottla.storage.cleaner.key_hash import hash_keys

keys = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70)
values = st.none() | st.binary(max_size=90)
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2).map(tuple)
timestamps = st.integers(0, 2**61) | st.integers(0, 10_000)


@st.composite
def batches(draw: st.DrawFn) -> list[list[Record]]:
    offset, found = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.sampled_from([1, 2, 5, 40]))):
        records = []
        for _ in range(draw(st.integers(1, 4))):
            offset += draw(st.sampled_from([1, 1, 1, 100, 30_000]))
            records.append(Record(offset, draw(timestamps), draw(keys), draw(values), draw(headers)))
        found.append(records)
    return found


def placed(data: bytes, position: int) -> BatchSpan:
    header = read_header(data, position)
    return BatchSpan(
        position + HEADER_SIZE,
        position + header.size,
        header.records_count,
        header.base_offset,
        header.last_offset_delta,
    )


@given(batches())
@examples(60)
def test_columns_hold_the_fields_of_the_records(contents: list[list[Record]]) -> None:
    data, places = b"", []
    for records in contents:
        batch = build_batch(records)
        data += batch
        places.append(placed(data, len(data) - len(batch)))
    buffer = RecordBuffer(data + PADDING)
    columns = buffer.columns(places)
    expected = [record for records in contents for record in records]
    assert columns.offsets.tolist() == [record.offset for record in expected]
    assert buffer.is_tombstone(columns).tolist() == [record.value is None for record in expected]
    found = [
        None if length < 0 else data[position : position + length]
        for position, length in zip(columns.key_positions, columns.key_lengths, strict=True)
    ]
    assert found == [record.key for record in expected]
    bases = [records[0].timestamp for records in contents for _ in records]
    assert buffer.timestamp_deltas(columns.bodies).tolist() == [
        record.timestamp - base for record, base in zip(expected, bases, strict=True)
    ]
    assert columns.ends[columns.first_of_batch[1:] - 1].tolist() == [place.end for place in places]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60), st.integers(0, 2**128 - 1))
@examples(60)
def test_hashes_are_equal_if_and_only_if_the_keys_are(contents: list[bytes], seed: int) -> None:
    data = b"".join(contents) + PADDING
    lengths = np.array([len(key) for key in contents], np.int64)
    positions = np.cumsum(lengths) - lengths
    first, second = hash_keys(RecordBuffer(data), positions, lengths, seed)
    hashes = list(zip(first.tolist(), second.tolist(), strict=True))
    for key, found in zip(contents, hashes, strict=True):
        assert [key == other for other in contents] == [found == other for other in hashes]


def test_keys_of_zero_bytes_with_different_lengths_have_different_hashes() -> None:
    data = bytes(64)
    lengths = np.arange(20)
    first, _ = hash_keys(RecordBuffer(data), np.zeros(20, np.int64), lengths, 7)
    assert len(set(first.tolist())) == 20


@given(st.integers(0, 30), st.integers(0, 255), st.sampled_from([1, 40]))
@examples(80)
def test_damaged_records_raise_no_other_error_than_kafka_error(position: int, byte: int, count: int) -> None:
    batch = bytearray(build_batch([Record(n, 5, b"key", b"value") for n in range(3)]))
    batch[HEADER_SIZE + position] = byte
    data = bytes(batch) * count
    try:
        expected = [record.key for record in iter_records(bytes(batch))]
    except KafkaError:
        expected = None
    buffer = RecordBuffer(data + PADDING)
    places = [placed(data, at * len(batch)) for at in range(count)]
    if expected is None:
        try:
            buffer.columns(places)
        except KafkaError:
            return
    else:
        columns = buffer.columns(places)
        assert columns.records == len(expected) * count


def test_a_field_beyond_the_end_of_the_buffer_is_rejected() -> None:
    batch = bytearray(build_batch([Record(0, 5, b"", b"")]))
    batch[HEADER_SIZE + 2 :] = bytes([0xFF] * (len(batch) - HEADER_SIZE - 2))
    data = bytes(batch) + bytes([0xFF] * len(PADDING))
    for count in (1, 30):
        with pytest.raises(KafkaError):
            RecordBuffer(data).columns([placed(data, 0)] * count)


def test_records_beyond_the_end_of_their_batch_are_rejected() -> None:
    data = build_batch([Record(0, 5, b"key", b"value")]) + PADDING
    place = placed(data, 0)
    for wrong in (place._replace(records_count=2), place._replace(end=place.end - 1)):
        with pytest.raises(KafkaError):
            RecordBuffer(data).columns([wrong])
        with pytest.raises(KafkaError):
            RecordBuffer(data).columns([wrong] * 30)
