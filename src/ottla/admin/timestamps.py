"""Times and durations in the format of Kafka's tools: ISO 8601, and UTC for a time without a zone."""

import re
from datetime import UTC, datetime

# No months and years, which have no fixed length, and no weeks, like Kafka's tool.
_DURATION = re.compile(
    r"(?P<sign>[-+])?P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def parse_duration_ms(text: str) -> int:
    """Parses PnDTnHnMn.nS, e.g. P7D, PT1H30M or P1DT0.5S. Raises ValueError for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None or all(found[unit] is None for unit in _UNIT_MS):
        raise ValueError(
            f"{text!r} is not a duration: expected PnDTnHnMnS (ISO 8601), e.g. P7D for a week or PT1H30M"
        )
    total = sum(int(found[unit] or 0) * unit_ms for unit, unit_ms in _UNIT_MS.items())
    fraction_ms = int((found["fraction"] or "").ljust(3, "0")[:3])
    total += -fraction_ms if (found["seconds"] or "").startswith("-") else fraction_ms
    return -total if found["sign"] == "-" else total


def parse_datetime_ms(text: str) -> int:
    """Parses an ISO 8601 time to milliseconds since the epoch. Raises ValueError for anything else."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: expected YYYY-MM-DDThh:mm:ss.sss, with a zone (Z, +01:00) or in UTC"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since_epoch = time - datetime.fromtimestamp(0, UTC)
    return since_epoch.days * 86_400_000 + since_epoch.seconds * 1000 + since_epoch.microseconds // 1000


def format_time(time_ms: int) -> str:
    """In UTC, to the millisecond. A number outside of the calendar is shown as it is."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms since the epoch"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
