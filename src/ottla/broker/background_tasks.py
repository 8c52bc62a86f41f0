"""Coroutines that run beside the request or the event that started them, and end with the broker."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.broker.promise import Promise

logger = logging.getLogger("ottla.broker")

T = TypeVar("T")


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts `work`. Nobody waits for it; an exception is logged."""
        self._start(work)

    def run(self, work: "Coroutine[Any, Any, T | Promise[T]]") -> Promise[T]:
        """Starts `work` and returns its result. An exception fails the result, so that no client waits forever."""
        result: Promise[T] = Promise()

        async def run() -> None:
            try:
                value = await work
            except Exception as error:
                result.fail(error)
            else:
                result.resolve(value)

        # If the task is cancelled before it has begun, nothing has awaited `work`.
        self._start(run()).add_done_callback(lambda _: work.close())
        return result

    async def close(self) -> None:
        """Cancels the tasks that still run, and waits until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a background task failed", exc_info=error)
