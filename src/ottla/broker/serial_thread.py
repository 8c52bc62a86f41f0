"""Work that takes too long for the event loop and much memory: it runs in a thread, one piece at a time."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.promise import Promise
from ottla.env.threads import Threads
from ottla.model.errors import KafkaError

T = TypeVar("T")


class SerialThread:
    """Runs functions in a thread, one at a time, in the order of the calls.

    A long message or the records of one batch may need more than a hundred megabytes when they are unpacked, and
    threads share one processor anyway.
    """

    def __init__(self, threads: Threads, tasks: BackgroundTasks) -> None:
        self._threads = threads
        self._tasks = tasks
        self._lock = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        async with self._lock:
            result = await self._threads.run(partial(_attempt, work))
        if isinstance(result, KafkaError):
            raise result
        return result

    def submit(self, work: Callable[[], T]) -> Promise[T]:
        """As `run`, for a caller that is not a coroutine."""
        return self._tasks.run(self.run(work))


def _attempt(work: Callable[[], T]) -> T | KafkaError:
    """Returns a KafkaError without its frames, which would keep the unpacked data until the next garbage collection."""
    try:
        return work()
    except KafkaError as error:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
