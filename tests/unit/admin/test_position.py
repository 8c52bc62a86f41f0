"""The values of `ottla consume --from`."""

from datetime import datetime

import pytest

from ottla.admin.position import Position, parse_position

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("0", Position("offset", 0)),
        ("99999999999", Position("offset", 99_999_999_999)),
        ("1700000000000", Position("time", 1_700_000_000_000)),
        ("-90s", Position("time", NOW_MS - 90_000)),
        ("-5m", Position("time", NOW_MS - 300_000)),
        ("-1.5h", Position("time", NOW_MS - 5_400_000)),
        ("-2d", Position("time", NOW_MS - 172_800_000)),
        ("-1w", Position("time", NOW_MS - 604_800_000)),
        ("-250ms", Position("time", NOW_MS - 250)),
        ("2026-01-31T12:00:00Z", Position("time", 1_769_860_800_000)),
        ("2026-01-31T13:00:00.5+01:00", Position("time", 1_769_860_800_500)),
    ],
)
def test_names_offsets_and_times_are_positions(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2026, 1, 31, 12).astimezone()
    assert parse_position("2026-01-31T12:00:00", NOW_MS) == Position("time", int(local.timestamp() * 1000))


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "-1y", "1h", "2026-13-01", "٣"])
def test_anything_else_is_not_a_position(text: str) -> None:
    with pytest.raises(ValueError, match="expected earliest, latest, an offset"):
        parse_position(text, NOW_MS)
