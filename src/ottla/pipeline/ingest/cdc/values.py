"""Forms of values in a record that databases share: those of Debezium's defaults.

Dates are days since 1970, times microseconds, dates with times milliseconds or microseconds since 1970, bytes Base64.
"""

import base64
import datetime

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def days(year: int, month: int, day: int) -> int | None:
    """None for MySQL's zero dates and other days that do not exist."""
    try:
        return datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def date_time(day: int | None, microseconds: int, precision: int) -> int | None:
    """Milliseconds for a precision of up to three digits, microseconds beyond. `microseconds` are those of the day."""
    if day is None:
        return None
    since_epoch = day * _DAY_US + microseconds
    return since_epoch if precision > 3 else since_epoch // 1000


def time_us(text: str) -> int:
    """`-12:34:56.789`, hours up to 838."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    in_seconds = int(hours) * 3600 + int(minutes) * 60 + int(whole)
    return sign * (in_seconds * 1_000_000 + int(fraction.ljust(6, "0")))
