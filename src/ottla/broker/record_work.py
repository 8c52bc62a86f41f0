"""Work on the records of one batch that takes too long for the event loop: checking them, lookups by time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ottla.env.workers import Workers

T = TypeVar("T")


class RecordWork:
    """One batch at a time: each may unpack to more than a hundred megabytes, and threads share one processor anyway."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` beside the event loop, after what was asked for before."""
        async with self._turn:
            return await self._workers.run(work)
