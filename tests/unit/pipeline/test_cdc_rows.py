"""Rows of binlog events, from bytes that are put together here as MySQL's documentation describes them."""

import datetime
import struct
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql.binlog import rows
from ottla.pipeline.ingest.cdc.mysql.binlog.rows import Column, RowDecoder
from ottla.pipeline.ingest.cdc.mysql.charsets import decoder_of
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlSettings, capture_of
from ottla.pipeline.ingest.cdc.mysql.snapshot_query import read_date, read_date_time

BYTES_OF_DIGITS = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]


def packed_decimal(text: str, precision: int, decimals: int) -> bytes:
    """A DECIMAL as it lies in the binlog."""
    negative = text.startswith("-")
    whole, _, fraction = text.lstrip("-").partition(".")
    whole = whole.zfill(precision - decimals)[-(precision - decimals) :] if precision > decimals else ""
    head = len(whole) % 9
    groups = [whole[:head]] if head else []
    groups += [whole[at : at + 9] for at in range(head, len(whole), 9)]
    groups += [fraction[at : at + 9] for at in range(0, decimals, 9)]
    data = bytearray(b"".join(int(group).to_bytes(BYTES_OF_DIGITS[len(group)], "big") for group in groups))
    if negative:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[str, int, int]:
    precision = draw(st.integers(1, 65))
    after = draw(st.integers(0, min(30, precision)))
    number = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    digits = str(abs(number)).zfill(after + 1)
    text = (digits[:-after] or "0") + "." + digits[-after:] if after else digits
    return ("-" if number < 0 else "") + text, precision, after


@settings(deadline=None)
@given(decimals())
def test_decimals_keep_every_digit(example: tuple[str, int, int]) -> None:
    text, precision, after = example
    packed = packed_decimal(text, precision, after)
    decoded, end = rows.decimal(precision, after)(packed, 0)
    assert decoded == text
    assert Decimal(decoded) == Decimal(text)
    assert end == len(packed)


@settings(deadline=None)
@given(st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6), st.sampled_from([0, 2, 4, 6]))
def test_times_keep_sign_and_fraction(microseconds: int, precision: int) -> None:
    step = 10 ** (6 - precision)
    microseconds = int(microseconds / step) * step
    seconds, fraction = divmod(abs(microseconds), 10**6)
    packed = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    width = precision // 2
    total = (packed << 8 * width) + fraction // step
    stored = (1 << (23 + 8 * width)) + (-total if microseconds < 0 else total)
    assert rows.clock(precision)(stored.to_bytes(3 + width, "big"), 0)[0] == microseconds


@settings(deadline=None)
@given(st.datetimes())
def test_date_times_are_the_same_from_the_binlog_and_as_text(moment: datetime.datetime) -> None:
    packed = (moment.year * 13 + moment.month) << 22 | moment.day << 17
    packed |= moment.hour << 12 | moment.minute << 6 | moment.second
    data = (packed + (1 << 39)).to_bytes(5, "big") + moment.microsecond.to_bytes(3, "big")
    decoded, _ = rows.date_time(6)(data, 0)
    assert decoded == read_date_time(f"{moment:%Y-%m-%d}".zfill(10) + f" {moment:%H:%M:%S.%f}", 6)
    assert decoded == (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


@settings(deadline=None)
@given(st.dates())
def test_dates_are_days_since_1970(day: datetime.date) -> None:
    data = (day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little")
    assert rows.date(data, 0)[0] == read_date(day.isoformat()) == (day - datetime.date(1970, 1, 1)).days


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_the_shortest_number_of_its_four_bytes(number: float) -> None:
    short = values.single(number)
    assert struct.pack("<f", short) == struct.pack("<f", number)
    assert values.single(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == 0.1


@settings(deadline=None)
@given(st.binary())
def test_latin1_knows_all_bytes(data: bytes) -> None:
    assert len(decoder_of("latin1")(data)) == len(data)


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_nulls_take_no_bytes(row: list[int | None]) -> None:
    columns = [Column(f"c{index}", FIELD_TYPE.LONG) for index in range(len(row))]
    nulls = sum(1 << index for index, value in enumerate(row) if value is None)
    data = nulls.to_bytes((len(row) + 7) // 8, "little")
    data += b"".join(struct.pack("<i", value) for value in row if value is not None)
    assert list(RowDecoder("d.t", columns).all(data + data)) == [row, row]


def test_zero_dates_are_null() -> None:
    assert values.days(0, 0, 0) is None
    assert values.date_time(None, 5, 0) is None
    assert values.timestamp(0, 0, 0) is None


def test_a_type_that_cannot_be_read_is_named_with_its_column() -> None:
    with pytest.raises(PipelineError, match=r"Column `c` of d\.t has a type.*number 7 .*FORCE"):
        RowDecoder("d.t", [Column("c", FIELD_TYPE.TIMESTAMP)])
    with pytest.raises(PipelineError, match=r"Column `c` of d\.t has the character set klingon"):
        RowDecoder("d.t", [Column("c", FIELD_TYPE.VARCHAR, charset="klingon", size=9)])


def test_each_pipeline_reads_under_a_number_of_its_own() -> None:
    settings = MySqlSettings(host="h", user="u", tables=("a.*",), topic="raw")
    one, other = (capture_of(settings, "db", f"{pipeline}.db", "/state") for pipeline in ("p", "q"))
    assert one.server_id != other.server_id
    assert one == capture_of(settings, "db", "p.db", "/state")
    assert type(one).from_option(one.to_option()) == one
    assert one.captures("a", "b")
    assert not one.captures("ab", "c")
