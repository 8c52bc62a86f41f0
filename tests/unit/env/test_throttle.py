"""The throttle of compaction, with one process and with several."""

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.env import throttle as throttle_module
from ottla.env.processes import ChildProcesses
from ottla.env.throttle import SharedThrottle


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
    monkeypatch.setattr(throttle_module, "time", clock)
    return clock


@pytest.fixture
def throttle() -> Iterator[SharedThrottle]:
    throttle = SharedThrottle.create()
    yield throttle
    throttle.close()


def test_bytes_take_the_time_that_the_limit_allows(clock: Clock, throttle: SharedThrottle) -> None:
    throttle.set_limit(1_000_000)
    for _ in range(50):
        throttle(100_000)
    assert clock.now_s - 100 == pytest.approx(5, rel=0.05)


@pytest.mark.parametrize("limit", [float("1.7976931348623157E308"), float("inf")])
def test_without_a_limit_there_is_no_wait(clock: Clock, throttle: SharedThrottle, limit: float) -> None:
    throttle.set_limit(limit)
    for _ in range(1000):
        throttle(1 << 30)
    assert clock.now_s == 100


def test_time_between_two_calls_counts(clock: Clock, throttle: SharedThrottle) -> None:
    throttle.set_limit(1000)
    throttle(100)
    before = clock.now_s
    clock.now_s += 0.5
    throttle(100)
    assert clock.now_s - before == pytest.approx(0.6)


@pytest.mark.parametrize("limit", [0.0, -1.0, 1.0])
def test_a_limit_that_is_raised_ends_the_wait(throttle: SharedThrottle, limit: float) -> None:
    throttle.set_limit(limit)
    waiting = threading.Thread(target=throttle, args=(1000,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    throttle.set_limit(1_000_000)
    waiting.join(30)
    assert not waiting.is_alive()


def work(throttle: SharedThrottle, steps: int) -> Iterator[float]:
    """Yields the start time and the end time."""
    yield time.monotonic()
    for _ in range(steps):
        throttle(10_000)
    yield time.monotonic()


@pytest.mark.slow
def test_processes_share_one_limit() -> None:
    processes = ChildProcesses()

    async def times() -> list[float]:
        throttle = processes.throttle()
        return [when async for when in processes.stream(partial(work, throttle, 20))]

    async def main() -> float:
        processes.throttle().set_limit(400_000)
        one, two = await asyncio.gather(times(), times())
        return max(*one, *two) - min(*one, *two)

    try:
        # 400,000 bytes in total: twice as long as one process alone would take.
        assert asyncio.run(main()) >= 0.95
    finally:
        processes.close()
