"""Simulated threads: the work runs on the event loop, between two random delays."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from ottla.sim.loop_watch import outside_loop

T = TypeVar("T")


class SimThreads:
    """The delays before and after the work let a simulated crash fall on either side of it."""

    def __init__(self, random: Random, delay_ms_max: float = 5.0) -> None:
        self._random = random
        self._delay_s_max = delay_ms_max / 1000
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("the simulated threads are closed and accept no more work")
        await asyncio.sleep(self._random.random() * self._delay_s_max)
        with outside_loop():
            result = work()
        await asyncio.sleep(self._random.random() * self._delay_s_max)
        return result

    async def run_in_background(self, work: Callable[[], T]) -> T:
        return await self.run(work)

    async def run_all(self, works: Sequence[Callable[[], None]], concurrency: int) -> None:
        for work in works:
            await self.run(work)

    def close(self) -> None:
        self._closed = True
