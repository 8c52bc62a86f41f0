"""Time that a test can advance: an event loop, which has all timers of a broker, and a clock that agrees with it."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from ottla.broker.partition_flush import flush_partition
from ottla.env.clock import SystemClock

if TYPE_CHECKING:
    from ottla.broker.hosted_partition import HostedPartition
    from ottla.broker.node import Broker

# A timer wakes a task, which may wake another: each needs a turn of the event loop.
_TURNS = 10
# Less than the longest session of a broker, which must send a heartbeat meanwhile.
_STEP_MS_MAX = 20 * 24 * 3600 * 1000


class AdvancedTime:
    """How far a broker's time is ahead of the machine's. It outlives a restart of the broker."""

    def __init__(self) -> None:
        self.advanced_ms = 0


class AdvancingClock:
    def __init__(self, time: AdvancedTime) -> None:
        self._time = time
        self._system = SystemClock()

    def now_ms(self) -> int:
        return self._system.now_ms() + self._time.advanced_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._time.advanced_ms

    def monotonic_ns(self) -> int:
        return self._system.monotonic_ns() + self._time.advanced_ms * 1_000_000


class AdvancingLoop(asyncio.SelectorEventLoop):
    """asyncio's loop and not uvloop's, whose timers have a time of their own that cannot be advanced."""

    def __init__(self, time: AdvancedTime) -> None:
        self._advanced = time
        super().__init__()

    def time(self) -> float:
        return super().time() + self._advanced.advanced_ms / 1000


def advanced_ms(**duration: float) -> int:
    """Raises ValueError if the duration is not positive: time does not go back."""
    total = timedelta(**duration)
    if total <= timedelta():
        raise ValueError(f"time cannot be advanced by {total}: expected a positive duration")
    return total // timedelta(milliseconds=1)


async def advance(broker: "Broker", time: AdvancedTime, milliseconds: int) -> None:
    while milliseconds > 0:
        step_ms = min(milliseconds, _STEP_MS_MAX)
        milliseconds -= step_ms
        time.advanced_ms += step_ms
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    await broker.housekeeping.apply_retention(broker.services.env.clock.now_ms())


async def apply_retention(broker: "Broker", topic: str) -> None:
    _partitions(broker, topic)
    await broker.housekeeping.apply_retention(broker.services.env.clock.now_ms())


async def compact(broker: "Broker", topic: str) -> None:
    """Raises ValueError if the topic does not exist or is not compacted."""
    env = broker.services.env
    for hosted in _partitions(broker, topic):
        if "compact" not in hosted.log.config.cleanup_policy:
            raise ValueError(f"topic {topic} is not compacted. Create it with cleanup.policy=compact")
        hosted.log.roll(env.clock.now_ms())
        await flush_partition(env, hosted)
        await broker.log_cleaner.clean_now(hosted)


def _partitions(broker: "Broker", topic: str) -> "list[HostedPartition]":
    found = [hosted for hosted in broker.services.partitions if hosted.topic_partition.topic == topic]
    if not found:
        raise ValueError(f"there is no topic {topic}")
    return found
