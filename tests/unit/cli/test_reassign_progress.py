"""The rate of a reassignment and the time that is left, and how they are shown."""

import json

import pytest

from ottla.admin.reassignments import Progress
from ottla.cli import reassign_progress
from ottla.cli.reassign_progress import Rate, RateMeter


def test_the_rate_is_that_of_the_last_polls() -> None:
    meter = RateMeter()
    assert meter.update(Progress(1, 0, 10_000), 100.0) == Rate(0, None)
    assert meter.update(Progress(1, 1_000, 10_000), 101.0) == Rate(1_000, 9)
    for second in range(102, 140):
        meter.update(Progress(1, 1_000, 10_000), float(second))
    assert meter.update(Progress(1, 1_000, 10_000), 140.0) == Rate(0, None)


def test_bytes_that_disappear_are_no_negative_rate() -> None:
    """A follower may truncate its log."""
    meter = RateMeter()
    meter.update(Progress(1, 5_000, 10_000), 100.0)
    assert meter.update(Progress(1, 1_000, 10_000), 101.0) == Rate(0, None)


def test_without_a_terminal_there_are_lines_and_always_a_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    with reassign_progress._display(as_json=False) as show:
        show(Progress(2, 0, 1_000), Rate(0, None))
        show(Progress(1, 500, 1_000), Rate(500, 1))  # too soon after the first
        show(Progress(0, 1_000, 1_000), Rate(500, 0))
    assert capsys.readouterr().err.splitlines() == [
        "2 partitions are moving, 0 of 1000 bytes are copied, 0 bytes/s",
        "0 partitions are moving, 1000 of 1000 bytes are copied, 500 bytes/s, 0 s left",
    ]


def test_programs_get_objects(capsys: pytest.CaptureFixture[str]) -> None:
    with reassign_progress._display(as_json=True) as show:
        show(Progress(2, 0, 1_000), Rate(0, None))
    assert json.loads(capsys.readouterr().out) == {
        "moving": 2,
        "copied_bytes": 0,
        "total_bytes": 1000,
        "bytes_per_second": 0,
        "seconds_left": None,
    }


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with reassign_progress._display(as_json=False) as show:
        show(Progress(2, 500, 1_000), Rate(500, 1))
    said = capsys.readouterr().err
    assert "2 partitions" in said
    assert "1 s left" in said
