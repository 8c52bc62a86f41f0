"""Simulated threads: the work runs on the event loop, between two delays."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from ottla.sim.disk import SimDisk
from ottla.sim.loop_watch import outside_loop

T = TypeVar("T")


class SimThreads:
    """The delays before and after the work let a simulated crash fall on either side of it.

    The disk operations of the work take the time that the speed of `disk` says, after it.
    """

    def __init__(self, random: Random, disk: SimDisk | None = None, delay_ms_max: float = 5.0) -> None:
        self._random = random
        self._disk = disk
        self._delay_s_max = delay_ms_max / 1000
        self._closed = False
        self.queued = 0

    async def run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("the simulated threads are closed and accept no more work")
        await asyncio.sleep(self._random.random() * self._delay_s_max + self._queue_s())
        before_s = self._busy_s()
        with outside_loop():
            result = work()
        await asyncio.sleep(self._random.random() * self._delay_s_max + self._busy_s() - before_s)
        return result

    async def run_in_background(self, work: Callable[[], T]) -> T:
        return await self.run(work)

    async def run_detached(self, work: Callable[[], T]) -> T:
        return await self.run(work)

    async def run_all(self, works: Sequence[Callable[[], None]], concurrency: int) -> None:
        for work in works:
            await self.run(work)

    def close(self) -> None:
        self._closed = True

    def _queue_s(self) -> float:
        """On a slow disk the work also waits for operations of others, so that a crash can come before it."""
        return 0.0 if self._disk is None else self._random.random() * self._disk.speed.sync_ms / 1000

    def _busy_s(self) -> float:
        return 0.0 if self._disk is None else self._disk.busy_s
