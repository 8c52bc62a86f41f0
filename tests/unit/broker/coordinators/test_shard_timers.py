"""The timers of a shard fire when they are due, also if they were postponed, brought forward or cancelled."""

import asyncio
from dataclasses import dataclass
from typing import Any

from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.broker.delayed_operations import DelayedOperations
from ottla.core.coordination import CancelTimer, Command, StartTimer, TimerChange
from ottla.sim.loop import run


@dataclass(frozen=True, slots=True)
class Ring(Command[None]):
    number: int


def rings(*script: tuple[int, TimerChange]) -> list[tuple[int, int]]:
    """Applies each timing of `script` at its millisecond. Returns (millisecond, number) of all timers that fire."""
    fired: list[tuple[int, int]] = []
    errors: list[Exception] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()

        def fire(command: Any) -> None:
            fired.append((round(loop.time() * 1000), command.number))

        delayed_operations = DelayedOperations()
        timers = ShardTimers(delayed_operations, fire, errors.append)
        for at_ms, timing in script:
            await asyncio.sleep(at_ms / 1000 - loop.time())
            timers.update([timing])
        await asyncio.sleep(60)
        assert len(delayed_operations) == 0

    run(play())
    assert errors == []
    return fired


def start(delay_ms: int, number: int) -> StartTimer:
    return StartTimer("key", delay_ms, Ring(number))


def test_a_postponed_timer_fires_once_at_its_last_time() -> None:
    assert rings((0, start(1000, 1)), (400, start(1000, 2)), (900, start(1000, 3))) == [(1900, 3)]


def test_a_timer_that_is_brought_forward_fires_at_the_earlier_time() -> None:
    assert rings((0, start(5000, 1)), (400, start(100, 2))) == [(500, 2)]


def test_a_cancelled_timer_does_not_fire_and_may_be_started_again() -> None:
    cancel = CancelTimer("key")
    assert rings((0, start(1000, 1)), (400, cancel)) == []
    assert rings((0, start(1000, 1)), (400, cancel), (500, start(200, 2))) == [(700, 2)]
    assert rings((0, start(1000, 1)), (400, cancel), (600, start(3000, 2))) == [(3600, 2)]


def test_timers_of_other_keys_keep_their_own_time() -> None:
    other = StartTimer("other", 700, Ring(9))
    assert rings((0, start(1000, 1)), (100, other), (500, start(1000, 2))) == [(800, 9), (1500, 2)]
