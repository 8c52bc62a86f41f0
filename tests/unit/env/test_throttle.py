"""The throttle of compaction: what it lets through in a time."""

import pytest

from ottla.env import throttle
from ottla.env.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock


def test_bytes_take_the_time_that_the_limit_gives_them(clock: Clock) -> None:
    pace = Throttle(1_000_000)
    for _ in range(50):
        pace(100_000)
    assert clock.now_s - 100 == pytest.approx(5, rel=0.05)


def test_without_a_limit_nobody_waits(clock: Clock) -> None:
    pace = Throttle(float("1.7976931348623157E308"))
    for _ in range(1000):
        pace(1 << 30)
    assert clock.now_s == 100


def test_time_that_passed_anyhow_counts(clock: Clock) -> None:
    pace = Throttle(1000)
    pace(100)
    before = clock.now_s
    clock.now_s += 0.5
    pace(100)
    assert clock.now_s - before == pytest.approx(0.6)
