import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive import lag as lags
from ottla.pipeline.archive.coverage import Coverage
from ottla.pipeline.archive.lag import Lag, Retention, RetentionWatch, duration, lag_of, warning_of
from ottla.pipeline.archive.samples import Sample
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import RetriableError
from ottla.pipeline.stage import ClusterSettings

AT = TopicPartition("raw", 0)
HOUR_MS = 3_600_000
WEEK = Retention(168 * HOUR_MS, None)


def lag(
    archived_end: int, retention: Retention = WEEK, *, age_ms: int = 0, size: int = 100, earliest: int = 0
) -> Lag:
    oldest = [Sample(1_000 * HOUR_MS - age_ms, size)]
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


def test_the_time_left_by_size_is_estimated_from_the_time_in_which_the_records_came() -> None:
    by_size = Retention(None, 100_000)
    assert warning_of(lag(400, by_size, age_ms=6 * HOUR_MS)) == (
        "600 records of raw-0 are not archived, and start to expire in about 4 hours."
    )
    both = Retention(8 * HOUR_MS, 100_000)
    assert "in about 2 hours" in str(warning_of(lag(400, both, age_ms=6 * HOUR_MS)))
    assert "in about 0 seconds" in str(warning_of(lag(0, by_size, age_ms=6 * HOUR_MS, size=200)))


def test_without_retention_nothing_expires() -> None:
    assert warning_of(lag(0, Retention(None, None), age_ms=900 * HOUR_MS)) is None


@pytest.mark.parametrize(
    ("seconds", "said"), [(59.9, "59 seconds"), (121, "2 minutes"), (7300, "2 hours"), (300_000, "3 days")]
)
def test_durations_are_rounded(seconds: float, said: str) -> None:
    assert duration(seconds) == said


class FakeQuery:
    """Runs for some checks, then ends or fails."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)

    def awaitTermination(self, timeout: float) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_last_check_is_kept_for_metrics_until_a_check_fails_or_the_query_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Lag(AT, 600, 0, 0.2, 60.0)]
    monkeypatch.setattr(lags, "archive_lag", lambda *_: found)
    covered = [Coverage(AT, 600, 500, 1, 20)]
    monkeypatch.setattr(lags, "coverage_of", lambda *_: covered)
    watch = RetentionWatch(ClusterSettings("127.0.0.1:9"), ["raw"], Archive.at(str(tmp_path)), dict)
    assert not watch.lags
    assert not watch.coverage
    watch.check()
    assert list(watch.lags) == found
    assert list(watch.coverage) == covered
    watch.follow(FakeQuery(False, True)).join(30)  # type: ignore[arg-type]
    assert not watch.lags
    assert not watch.coverage
    watch.check()

    def fail(*_: object) -> list[Lag]:
        raise RetriableError("No broker responds.", "Start one.")

    monkeypatch.setattr(lags, "archive_lag", fail)
    watch.check()
    assert not watch.lags
    assert list(watch.coverage) == covered


def test_a_storage_that_cannot_be_read_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = [Lag(AT, 600, 0, 0.2, 60.0)]
    monkeypatch.setattr(lags, "archive_lag", lambda *_: found)
    (tmp_path / "_manifests").write_text("not a folder")
    watch = RetentionWatch(ClusterSettings("127.0.0.1:9"), ["raw"], Archive.at(str(tmp_path)), dict)
    with caplog.at_level(logging.WARNING):
        watch.check()
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning.startswith(f"The coverage of the archive at file://{tmp_path} is not known: ")
    assert not watch.coverage
    assert list(watch.lags) == found


@pytest.mark.parametrize("last", [True, RuntimeError("the query failed")])
def test_retention_is_watched_beside_the_query_until_it_ends(
    last: bool | Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    results: list[Any] = [RetriableError("No broker responds.", "Start one."), [Lag(AT, 600, 0, 0.9, 60.0)]]

    def archive_lag(*_: object) -> list[Lag]:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return list(result)

    monkeypatch.setattr(lags, "archive_lag", archive_lag)
    monkeypatch.setattr(lags, "coverage_of", lambda *_: [])
    watch = RetentionWatch(ClusterSettings("127.0.0.1:9"), ["raw"], Archive.at(str(tmp_path)), dict)
    with caplog.at_level(logging.WARNING):
        thread = watch.follow(FakeQuery(False, last))  # type: ignore[arg-type]
        thread.join(30)
    assert not thread.is_alive()
    first, second = (record.getMessage() for record in caplog.records)
    assert "could not be checked: No broker responds." in first
    assert second.startswith(f"The archive at file://{tmp_path} falls behind: 600 records of raw-0")
