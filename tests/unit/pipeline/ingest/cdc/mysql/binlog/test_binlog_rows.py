"""Rows of binlog events, from bytes that are built here as MySQL's documentation describes them."""

import datetime
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.constants import FIELD_TYPE
from tests.examples import examples

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql import values as mysql_values
from ottla.pipeline.ingest.cdc.mysql.binlog import rows
from ottla.pipeline.ingest.cdc.mysql.binlog.columns import BinlogColumn
from ottla.pipeline.ingest.cdc.mysql.binlog.decimals import decimal_decoder
from ottla.pipeline.ingest.cdc.mysql.binlog.rows import RowDecoder
from ottla.pipeline.ingest.cdc.mysql.charsets import charset_decoder
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlSettings, mysql_capture
from ottla.pipeline.ingest.cdc.mysql.snapshot_query import convert_date, convert_date_time

BYTES_OF_DIGITS = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]


def packed_decimal(text: str, precision: int, decimals: int) -> bytes:
    """A DECIMAL as in the binlog."""
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


@examples()
@given(decimals())
def test_decimals_keep_every_digit(example: tuple[str, int, int]) -> None:
    text, precision, after = example
    packed = packed_decimal(text, precision, after)
    decoded, end = decimal_decoder(precision, after)(packed, 0)
    assert decoded == text
    assert Decimal(decoded) == Decimal(text)
    assert end == len(packed)


@examples()
@given(st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6), st.sampled_from([0, 2, 4, 6]))
def test_times_keep_sign_and_fraction(microseconds: int, precision: int) -> None:
    step = 10 ** (6 - precision)
    microseconds = int(microseconds / step) * step
    seconds, fraction = divmod(abs(microseconds), 10**6)
    packed = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    width = precision // 2
    total = (packed << 8 * width) + fraction // step
    stored = (1 << (23 + 8 * width)) + (-total if microseconds < 0 else total)
    assert rows.time_decoder(precision)(stored.to_bytes(3 + width, "big"), 0)[0] == microseconds


@examples()
@given(st.datetimes())
def test_date_times_are_the_same_from_the_binlog_and_as_text(time: datetime.datetime) -> None:
    packed = (time.year * 13 + time.month) << 22 | time.day << 17
    packed |= time.hour << 12 | time.minute << 6 | time.second
    data = (packed + (1 << 39)).to_bytes(5, "big") + time.microsecond.to_bytes(3, "big")
    decoded, _ = rows.date_time_decoder(6)(data, 0)
    assert decoded == convert_date_time(f"{time:%Y-%m-%d}".zfill(10) + f" {time:%H:%M:%S.%f}", 6)
    assert decoded == (time - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


@examples()
@given(st.dates())
def test_dates_are_days_since_1970(day: datetime.date) -> None:
    data = (day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little")
    assert (
        rows.decode_date(data, 0)[0]
        == convert_date(day.isoformat())
        == (day - datetime.date(1970, 1, 1)).days
    )


@examples()
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_the_shortest_number_of_its_four_bytes(number: float) -> None:
    short = mysql_values.shortest_float(number)
    assert struct.pack("<f", short) == struct.pack("<f", number)
    assert mysql_values.shortest_float(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == 0.1


@examples()
@given(st.binary())
def test_latin1_decodes_all_bytes(data: bytes) -> None:
    assert len(charset_decoder("latin1")(data)) == len(data)


@examples()
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_nulls_take_no_bytes(row: list[int | None]) -> None:
    columns = [BinlogColumn(f"c{index}", FIELD_TYPE.LONG) for index in range(len(row))]
    nulls = sum(1 << index for index, value in enumerate(row) if value is None)
    data = nulls.to_bytes((len(row) + 7) // 8, "little")
    data += b"".join(struct.pack("<i", value) for value in row if value is not None)
    assert list(RowDecoder("d.t", columns).decode(data + data)) == [row, row]


def test_zero_dates_are_null() -> None:
    assert values.days(0, 0, 0) is None
    assert values.date_time(None, 5, 0) is None
    assert mysql_values.timestamp(0, 0, 0) is None


def test_a_type_that_cannot_be_decoded_is_an_error_that_names_the_column() -> None:
    with pytest.raises(PipelineError, match=r"Column `c` of d\.t has a type.*type 7 .*FORCE"):
        RowDecoder("d.t", [BinlogColumn("c", FIELD_TYPE.TIMESTAMP)])
    with pytest.raises(PipelineError, match=r"Column `c` of d\.t has the character set klingon"):
        RowDecoder("d.t", [BinlogColumn("c", FIELD_TYPE.VARCHAR, charset="klingon", size=9)])


def test_each_pipeline_reads_under_a_server_id_of_its_own() -> None:
    settings = MySqlSettings(host="h", user="u", tables=("a.*",), topic="raw")
    one, other = (mysql_capture(settings, "db", f"{pipeline}.db", "/state") for pipeline in ("p", "q"))
    assert one.server_id != other.server_id
    assert one == mysql_capture(settings, "db", "p.db", "/state")
    assert type(one).from_option(one.to_option()) == one
    assert one.captures("a", "b")
    assert not one.captures("ab", "c")
