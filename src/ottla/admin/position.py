"""Where to start reading: the earliest record, the end, an offset, or a time."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
# No log has an offset this large; as milliseconds it is a date in 1973.
_SMALLEST_EPOCH_MS = 100_000_000_000


class Position(NamedTuple):
    """`kind` is earliest, latest, offset or time; `value` is the offset, or milliseconds since the epoch."""

    kind: str
    value: int = 0


EARLIEST, LATEST = Position("earliest"), Position("latest")


def parse_position(text: str, now_ms: int) -> Position:
    """Parses earliest, latest, an offset, "-1h", an ISO time, or milliseconds since the epoch. Raises ValueError."""
    if text in ("earliest", "latest"):
        return Position(text)
    if text.isascii() and text.isdigit():
        number = int(text)
        return Position("time" if number >= _SMALLEST_EPOCH_MS else "offset", number)
    ago = _AGO.fullmatch(text)
    if ago:
        return Position("time", now_ms - int(float(ago[1]) * _UNIT_MS[ago[2]]))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"--from {text}: expected earliest, latest, an offset, a time ago (-90s, -5m, -1h, -2d), an ISO time "
            "(2026-01-31T12:00:00Z) or milliseconds since the epoch"
        ) from None
    if time.tzinfo is None:
        time = time.astimezone()
    return Position("time", int(time.astimezone(UTC).timestamp() * 1000))
