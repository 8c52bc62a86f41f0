"""Threads for work that would block the event loop: fsync, reads outside the page cache, deletion of large files."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")

# Added to the niceness of the background thread. The system caps the sum at 19.
_BACKGROUND_NICENESS = 10


class Threads(Protocol):
    @property
    def queued(self) -> int:
        """How much work waits for a thread."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread and returns its result."""
        ...

    async def run_in_background(self, work: Callable[[], T]) -> T:
        """Runs `work` with low priority, one call at a time, for example a deletion that no client waits for."""
        ...

    async def run_detached(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread of its own, for which neither `close` nor the end of the process waits: it may hang
        with the system that it talks to.
        """
        ...

    async def run_all(self, works: Sequence[Callable[[], None]], concurrency: int) -> None:
        """Runs all of `works`, `concurrency` at a time, and returns when the last one is done."""
        ...

    def close(self) -> None: ...


class RealThreads:
    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla-io")
        self._background = ThreadPoolExecutor(
            1, thread_name_prefix="ottla-background", initializer=_lower_priority
        )

    @property
    def queued(self) -> int:
        return self._pool._work_queue.qsize() + self._background._work_queue.qsize()

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_in_background(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._background, work)

    async def run_detached(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        threading.Thread(
            target=_run_detached, args=(work, loop, result), name="ottla-detached", daemon=True
        ).start()
        return await result

    async def run_all(self, works: Sequence[Callable[[], None]], concurrency: int) -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="ottla-all")
        try:
            await asyncio.gather(*(loop.run_in_executor(pool, work) for work in works))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._background.shutdown(wait=True)


def _run_detached(
    work: Callable[[], T], loop: asyncio.AbstractEventLoop, result: "asyncio.Future[T]"
) -> None:
    settle: Callable[[], None]
    try:
        settle = partial(result.set_result, work())
    except BaseException as error:
        settle = partial(result.set_exception, error)
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(lambda: None if result.done() else settle())


def _lower_priority() -> None:
    """Lowers the priority of the calling thread. Only Linux has a priority for each thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, niceness + _BACKGROUND_NICENESS)
