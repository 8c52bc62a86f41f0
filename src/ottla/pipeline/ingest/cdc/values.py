"""A column's value as it stands in a record, the same whether it comes from a snapshot or from the binlog.

The forms are those of Debezium with `decimal.handling.mode=string` and its other defaults: dates as days, DATETIME as
milliseconds or microseconds by its precision, TIME as microseconds, TIMESTAMP as text in UTC, bytes as Base64.
"""

import base64
import datetime
import struct

EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
DAY_US = 86_400_000_000


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def days(year: int, month: int, day: int) -> int | None:
    """None for MySQL's zero dates and others that are no day of the calendar."""
    try:
        return datetime.date(year, month, day).toordinal() - EPOCH_DAY
    except ValueError:
        return None


def date_time(day: int | None, microseconds: int, precision: int) -> int | None:
    """`microseconds` are those of the day. Up to three digits of a second: milliseconds, beyond: microseconds."""
    if day is None:
        return None
    since_epoch = day * DAY_US + microseconds
    return since_epoch if precision > 3 else since_epoch // 1000


def timestamp(seconds: int, microseconds: int, precision: int) -> str | None:
    """ISO 8601 with as many digits as the column has. Zero is MySQL's zero date, not 1970."""
    if seconds == 0 and microseconds == 0:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    fraction = f".{microseconds:06d}"[: precision + 1] if precision else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def bits(value: int, width: int) -> bool | str:
    """BIT(1) is a boolean, wider ones are bytes, the lowest first."""
    if width == 1:
        return bool(value)
    return base64_text(value.to_bytes((width + 7) // 8, "little"))


def geometry(data: bytes) -> dict[str, str | int]:
    """MySQL keeps the reference system before the well-known binary form."""
    return {"wkb": base64_text(data[4:]), "srid": int.from_bytes(data[:4], "little")}


def single(value: float) -> float:
    """A FLOAT as the shortest number that is the same in four bytes: 3.14 rather than 3.140000104904175."""
    packed = struct.pack("<f", value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return float(f"{value:.9g}")


def clock_us(text: str) -> int:
    """`-12:34:56.789`, hours up to 838."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    in_seconds = int(hours) * 3600 + int(minutes) * 60 + int(whole)
    return sign * (in_seconds * 1_000_000 + int(fraction.ljust(6, "0")))
