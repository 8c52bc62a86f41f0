"""Work beside the event loop, as the loop sees it: done at some later time, heard of later still."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class SimWorkers:
    """Runs the work inline, after one delay and before another, so that a crash can fall on either side."""

    def __init__(self, random: Random, delay_ms_max: float = 5.0) -> None:
        self._random = random
        self._delay_s_max = delay_ms_max / 1000
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("the simulated workers are closed: no work is taken after close()")
        await asyncio.sleep(self._random.random() * self._delay_s_max)
        result = work()
        await asyncio.sleep(self._random.random() * self._delay_s_max)
        return result

    async def run_gently(self, work: Callable[[], T]) -> T:
        return await self.run(work)

    async def run_all(self, works: Sequence[Callable[[], None]], threads: int) -> None:
        for work in works:
            await self.run(work)

    def close(self) -> None:
        self._closed = True
