"""The check of a client's records agrees with the reader of records, one by one and in columns."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.fuzz.mutations import mutate

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records import windows
from ottla.records.column_check import check_in_columns
from ottla.records.compression import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from ottla.records.header import HEADER_SIZE, BatchHeader, read_header, sealed_parts
from ottla.records.record_check import (
    COLUMNS_MIN,
    RECORD_ERRORS_MAX,
    CheckedRecords,
    TimeBounds,
    check_one_by_one,
    check_records,
    check_start,
)
from ottla.records.records import Record, build_batch, iter_records
from ottla.records.varint import encode_varint

NOW = 1_700_000_000_000
BOUNDS = TimeBounds(NOW - 500, NOW + 500)
# What the check rejects in addition to the reader. No client writes it, and other readers cannot read it.
STRICTER = ("32-bit varint", "has the length", "offset delta")

Check = Callable[[bytes, CheckedRecords], int]


def plainly(data: bytes, found: CheckedRecords) -> int:
    return check_one_by_one(data, 0, len(data), 0, found.header.records_count, found)


def some_records(random: Random, count: int) -> list[Record]:
    """Of equal sizes, of many sizes, or with headers."""
    kind = random.randrange(3)
    records = []
    for index in range(count):
        value = bytes(20) if kind == 0 else random.choice((None, b"", bytes(random.randrange(300))))
        headers = (("key", b"value"), ("", None)) * random.randrange(3) if kind == 2 else ()
        timestamp = NOW + (0 if kind == 0 else random.choice((0, 1, 900, -900, 2**40)))
        records.append(Record(index, timestamp, random.choice((None, b"", b"key")), value, headers))
    return records


def payload_and_header(records: list[Record]) -> tuple[bytes, BatchHeader]:
    batch = build_batch(records)
    return batch[HEADER_SIZE:], read_header(batch)


def outcome(check: Check, data: bytes, header: BatchHeader) -> tuple[object, ...] | str:
    """The findings of the check, or its error. They must not depend on the method."""
    found = CheckedRecords(header, BOUNDS)
    try:
        end = check(data, found)
    except KafkaError as error:
        return f"{error.code.name}: {error.message}"
    if end != len(data):
        return "bytes follow"
    return (found.max_timestamp, found.missing_keys, found.without_key, found.out_of_bounds)


def read(data: bytes, header: BatchHeader) -> list[Record] | None:
    sealed = b"".join(sealed_parts(header._replace(batch_length=HEADER_SIZE - 12 + len(data)), data))
    try:
        return list(iter_records(sealed))
    except KafkaError:
        return None


@examples(300)
@given(
    seed=st.integers(0, 2**48),
    count=st.integers(1, 8) | st.integers(60, 200),
    count_error=st.sampled_from([0, 0, 0, -1, 1]),
    is_mutated=st.booleans(),
    window_bytes=st.sampled_from([40, 300, 1 << 20]),
)
def test_the_check_agrees_with_the_reader(
    seed: int, count: int, count_error: int, is_mutated: bool, window_bytes: int
) -> None:
    random = Random(seed)
    data, header = payload_and_header(some_records(random, count))
    data = mutate(random, data) if is_mutated else data
    header = header._replace(records_count=max(1, count + count_error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "WINDOW_BYTES", window_bytes)
        in_columns = outcome(check_in_columns, data, header)
    one_by_one = outcome(plainly, data, header)
    assert isinstance(in_columns, str) == isinstance(one_by_one, str), (in_columns, one_by_one)
    records = read(data, header)
    if isinstance(one_by_one, str):
        assert not one_by_one.startswith("corrupt_message")
        assert not str(in_columns).startswith("corrupt_message")
        assert records is None or any(word in one_by_one for word in STRICTER), one_by_one
        return
    assert in_columns == one_by_one
    assert records is not None
    assert [record.offset for record in records] == list(range(header.records_count))
    timestamps = [record.timestamp for record in records]
    without_key = [record.offset for record in records if record.key is None]
    outside = [
        (index, time)
        for index, time in enumerate(timestamps)
        if time != -1 and not NOW - 500 <= time <= NOW + 500
    ]
    assert one_by_one == (
        max(-1, *timestamps),
        len(without_key),
        without_key[:RECORD_ERRORS_MAX],
        outside[:RECORD_ERRORS_MAX],
    )


def encoded(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return encode_varint(len(body)) + body


def simple(index: int) -> bytes:
    return encoded(b"\0\0", encode_varint(index), b"\x02k", b"\x02v", b"\0")


BAD_RECORDS = {
    "an offset delta that repeats": encoded(b"\0\0\x00", b"\x01", b"\x01", b"\0"),
    "a key length of -2": encoded(b"\0\0\x02", b"\x03", b"\x01", b"\0"),
    "a value beyond the record": encoded(b"\0\0\x02", b"\x01", b"\x10v", b"\0"),
    "a header without a key": encoded(b"\0\0\x02", b"\x01", b"\x01", b"\x02\x01\x01"),
    "more headers than bytes": encoded(b"\0\0\x02", b"\x01", b"\x01", b"\x10\x02k\x01"),
    "a negative number of headers": encoded(b"\0\0\x02", b"\x01", b"\x01", b"\x01"),
    "a byte too much": encoded(b"\0\0\x02", b"\x01", b"\x01", b"\0", b"\0"),
    "a length of six bytes": b"\x8c\x80\x80\x80\x80\x00" + simple(1)[1:],
    "a negative length": b"\x01" + simple(1)[1:],
    "a length beyond the batch": b"\xfe\x7f" + simple(1)[1:],
    "nothing": b"",
}


@pytest.mark.parametrize("bad", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
@pytest.mark.parametrize("count", [3, 2 * COLUMNS_MIN], ids=["few", "many"])
def test_a_record_that_readers_cannot_parse_is_rejected(bad: bytes, count: int) -> None:
    data = simple(0) + bad + b"".join(simple(index) for index in range(2, count))
    header = payload_and_header(some_records(Random(1), count))[1]
    with pytest.raises(KafkaError) as caught:
        check_records(data, header)
    assert caught.value.code is ErrorCode.invalid_record
    good = b"".join(simple(index) for index in range(count))
    check_records(good, header)


def test_a_record_larger_than_a_window_is_checked_too() -> None:
    records = [Record(index, NOW, None, bytes(3_000_000 if index == 40 else 10)) for index in range(100)]
    data, header = payload_and_header(records)
    found = CheckedRecords(header)
    assert check_in_columns(data, found) == len(data)
    assert found.missing_keys == 100
    position = data.index(bytes(1_000))
    with pytest.raises(KafkaError):
        check_in_columns(
            data[: position + 3_000_000] + b"\x02" + data[position + 3_000_001 :], CheckedRecords(header)
        )


def test_many_headers_of_few_records_are_not_skipped_with_numpy() -> None:
    records = [Record(index, NOW, b"k", b"v", (("k", b"v"),) * 1_000) for index in range(64)]
    records[0] = records[0]._replace(headers=(("k", b"v"),) * 100_000)
    data, header = payload_and_header(records)
    assert check_in_columns(data, CheckedRecords(header)) == len(data)


# -- the check that always runs


def started(records: list[Record], **changes: int) -> None:
    batch = build_batch(records)
    header = read_header(batch)._replace(**changes)
    check_start(batch, header)


def test_all_records_of_a_small_batch_are_checked() -> None:
    records = [Record(index, NOW, None, b"v") for index in range(4)]
    started(records)
    for count in (3, 5, 2**31 - 1):
        with pytest.raises(KafkaError) as caught:
            started(records, records_count=count)
        assert caught.value.code is ErrorCode.invalid_record


def test_the_first_records_of_a_large_batch_are_checked() -> None:
    records = [Record(index, NOW, None, bytes(100)) for index in range(5_000)]
    batch = build_batch(records)
    header = read_header(batch)
    check_start(batch, header)
    garbage = Random(1).randbytes(len(batch) - HEADER_SIZE)
    with pytest.raises(KafkaError):
        check_start(batch[:HEADER_SIZE] + garbage, header)
    # Only the full check finds this.
    check_start(batch, header._replace(records_count=4_999))
    with pytest.raises(KafkaError):
        check_records(batch[HEADER_SIZE:], header._replace(records_count=4_999))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=CODEC_NAMES.__getitem__)
def test_the_first_bytes_of_a_compressed_batch_are_checked(codec: int) -> None:
    batch = build_batch([Record(0, NOW, None, b"v")], codec=codec)
    check_start(batch, read_header(batch))
    if codec != SNAPPY:  # has no magic of its own
        for noise in (b"", b"noise", bytes(100)):
            with pytest.raises(KafkaError, match=CODEC_NAMES[codec]):
                check_start(batch[:HEADER_SIZE] + noise, read_header(batch))


def test_a_zstd_frame_without_content_may_come_first() -> None:
    batch = build_batch([Record(0, NOW, None, b"v")], codec=ZSTD)
    skippable = b"\x53\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    check_start(batch[:HEADER_SIZE] + skippable + batch[HEADER_SIZE:], read_header(batch))
