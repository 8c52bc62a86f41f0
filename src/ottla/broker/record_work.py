"""Work on the records of one batch that takes too long for the event loop: checking them, lookups by time."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.env.threads import Threads
from ottla.model.errors import KafkaError

T = TypeVar("T")


class RecordWork:
    """One batch at a time: each may unpack to more than a hundred megabytes, and threads share one processor anyway."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` beside the event loop, after what was asked for before."""
        async with self._turn:
            done = await self._threads.run(partial(_attempt, work))
        if isinstance(done, KafkaError):
            raise done
        return done


def _attempt(work: Callable[[], T]) -> T | KafkaError:
    """Takes the frames from an error that is raised: they hold what was unpacked until the collector comes by."""
    try:
        return work()
    except KafkaError as error:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
