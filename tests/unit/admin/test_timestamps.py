"""Times and durations are parsed as Kafka's tools parse them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.admin.timestamps import format_time, parse_datetime_ms, parse_duration_ms


# The expected values are those of java.time.Duration, which Kafka's tool uses.
@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.567S", 93_784_567),
        ("pt1s", 1_000),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT1.0009S", 1_000),
        ("PT-6H3M", -21_420_000),
        ("-PT6H3M", -21_780_000),
        ("-PT-6H+3M", 21_420_000),
        ("PT-0.5S", -500),
        ("P-1D", -86_400_000),
    ],
)
def test_a_duration_is_parsed_as_in_java(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "20M", "P1W", "P1Y", "P1M", "PT1M1H", "PT.5S", "P1D ", "PT٣S"]
)
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: expected PnDTnHnMnS"):
        parse_duration_ms(text)


@examples(200)
@given(st.integers(0, 400), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(d: int, h: int, m: int, s: int, ms: int) -> None:
    total = (((d * 24 + h) * 60 + m) * 60 + s) * 1000 + ms
    assert parse_duration_ms(f"P{d}DT{h}H{m}M{s}.{ms:03}S") == total


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2026-01-31T12:00:00.5", 1_769_860_800_500),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.000+0000", 1_769_860_800_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, time_ms: int) -> None:
    assert parse_datetime_ms(text) == time_ms


@pytest.mark.parametrize("text", ["", "now", "12:00", "2026-13-01T00:00:00", "1769860800000"])
def test_anything_else_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: expected YYYY-MM-DDThh:mm:ss"):
        parse_datetime_ms(text)


@examples(200)
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_formatted_time_is_parsed_to_the_same_time(time_ms: int) -> None:
    assert parse_datetime_ms(format_time(time_ms)) == time_ms


def test_a_time_outside_of_the_calendar_is_formatted_as_a_number() -> None:
    assert format_time(-(10**20)) == "-100000000000000000000 ms since the epoch"
