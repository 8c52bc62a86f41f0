"""PostgreSQL's values, as text, into what a record holds: in Debezium's forms, numerics as text.

What does not fit the form of its type (infinity, years before Christ) stays the text that PostgreSQL writes.
"""

import re
from collections.abc import Callable
from typing import Any

from ottla.pipeline.ingest.cdc import values

Reader = Callable[[str], Any]

# Both the snapshot and the decoding of changes write values with these settings.
SESSION = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'iso_8601';"
    " SET extra_float_digits = 1; SET bytea_output = 'hex'"
)
DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)")
IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)\+00")
TIME = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)?")


def read_boolean(text: str) -> bool:
    return text in ("t", "true")


def read_float(text: str) -> float | str:
    return text if text in ("NaN", "Infinity", "-Infinity") else float(text)


def read_bytes(text: str) -> str:
    return values.base64_text(bytes.fromhex(text.removeprefix("\\x")))


def read_date(text: str) -> int | str | None:
    found = DATE.fullmatch(text)
    return values.days(int(found[1]), int(found[2]), int(found[3])) if found else text


def read_timestamp(text: str) -> int | str | None:
    """Microseconds since 1970, whatever the column's precision."""
    found = DATE_TIME.fullmatch(text)
    if not found:
        return text
    day = values.days(*map(int, found[1].split("-")))
    return values.date_time(day, values.clock_us(found[2]), 6)


def read_timestamp_with_zone(text: str) -> str:
    found = IN_UTC.fullmatch(text)
    return f"{found[1]}T{found[2]}Z" if found else text


def read_time(text: str) -> int | str:
    return values.clock_us(text) if TIME.fullmatch(text) else text


READERS: dict[int, Reader] = {
    16: read_boolean,
    17: read_bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    700: read_float,
    701: read_float,
    1082: read_date,
    1083: read_time,
    1114: read_timestamp,
    1184: read_timestamp_with_zone,
}


def reader(type_oid: int) -> Reader:
    """Numerics, texts, JSON, UUIDs, arrays and all others stay as they are written."""
    return READERS.get(type_oid, str)
