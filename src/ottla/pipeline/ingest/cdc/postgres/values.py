"""Converts PostgreSQL's values, which come as text, to those of a record: Debezium's forms, numerics as text.

A value that the form of its type cannot hold (infinity, years before Christ) stays the text that PostgreSQL writes.
"""

import re
from collections.abc import Callable
from typing import Any

from ottla.pipeline.ingest.cdc import values

Converter = Callable[[str], Any]

# Both the snapshot and logical decoding write values with these settings.
SESSION_SETTINGS = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601';"
    " SET extra_float_digits = 1; SET bytea_output = 'hex'"
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)")
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)\+00")
_TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")


def converter(type_oid: int) -> Converter:
    """Numerics, texts, JSON, UUIDs, arrays and all other types stay as PostgreSQL writes them."""
    return _CONVERTERS.get(type_oid, str)


def _convert_boolean(text: str) -> bool:
    return text in ("t", "true")


def _convert_float(text: str) -> float | str:
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def _convert_bytes(text: str) -> str:
    return values.base64_text(bytes.fromhex(text.removeprefix("\\x")))


def convert_date(text: str) -> int | str | None:
    found = _DATE.fullmatch(text)
    return values.days(int(found[1]), int(found[2]), int(found[3])) if found else text


def convert_timestamp(text: str) -> int | str | None:
    """Microseconds since 1970, whatever the column's precision."""
    found = _DATE_TIME.fullmatch(text)
    if not found:
        return text
    day = values.days(*map(int, found[1].split("-")))
    return values.date_time(day, values.time_us(found[2]), 6)


def _convert_timestamp_with_zone(text: str) -> str:
    found = _IN_UTC.fullmatch(text)
    return f"{found[1]}T{found[2]}Z" if found else text


def _convert_time(text: str) -> int | str:
    return values.time_us(text) if _TIME.fullmatch(text) else text


# By the type's oid: bool, bytea, int8, int2, int4, oid, float4, float8, date, time, timestamp, timestamptz.
_CONVERTERS: dict[int, Converter] = {
    16: _convert_boolean,
    17: _convert_bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    700: _convert_float,
    701: _convert_float,
    1082: convert_date,
    1083: _convert_time,
    1114: convert_timestamp,
    1184: _convert_timestamp_with_zone,
}
