import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.lag import Lag, Retention, duration, lag_of, warning_of

AT = TopicPartition("raw", 0)
HOUR_MS = 3_600_000
WEEK = Retention(168 * HOUR_MS, None)


def lag(
    archived_end: int, retention: Retention = WEEK, *, age_ms: int = 0, size: int = 100, earliest: int = 0
) -> Lag:
    oldest = [(1_000 * HOUR_MS - age_ms, size)]
    return lag_of(AT, archived_end, earliest, 1000, retention, oldest, 1_000 * HOUR_MS)


def test_an_archive_that_is_close_behind_has_no_warning() -> None:
    assert warning_of(lag(1000)) is None
    assert warning_of(lag(400, age_ms=10 * HOUR_MS)) is None


def test_records_that_expire_soon_are_counted() -> None:
    assert warning_of(lag(400, age_ms=165 * HOUR_MS)) == (
        "600 records of raw-0 are not archived, and start to expire in about 3 hours."
    )


def test_records_that_were_deleted_before_they_were_archived_are_counted() -> None:
    assert warning_of(lag(400, earliest=450)) == "50 offsets of raw-0 were deleted before they were archived."


def test_expiring_and_deleted_records_are_in_one_warning() -> None:
    said = warning_of(lag(400, age_ms=168 * HOUR_MS, earliest=450))
    assert said == (
        "550 records of raw-0 are not archived, and start to expire in about 0 seconds; "
        "50 offsets of raw-0 were deleted before they were archived."
    )


def test_retention_by_size_counts_too() -> None:
    by_size = Retention(None, 100_000)
    assert warning_of(lag(800, by_size)) is None
    assert warning_of(lag(400, by_size)) == (
        "600 records of raw-0 are not archived, and start to expire soon, by size."
    )


def test_without_retention_nothing_expires() -> None:
    assert warning_of(lag(0, Retention(None, None), age_ms=900 * HOUR_MS)) is None


@pytest.mark.parametrize(
    ("seconds", "said"), [(59.9, "59 seconds"), (121, "2 minutes"), (7300, "2 hours"), (300_000, "3 days")]
)
def test_durations_are_rounded(seconds: float, said: str) -> None:
    assert duration(seconds) == said
