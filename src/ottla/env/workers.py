"""Work that would block the event loop: fsync, cold reads, deletion of large files."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

_NICER_BY = 10


class Workers(Protocol):
    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` beside the event loop and returns what it returns."""
        ...

    async def run_gently(self, work: Callable[[], T]) -> T:
        """Likewise, for what nobody waits for and takes the processor: one at a time, and others come first."""
        ...

    async def run_all(self, works: Sequence[Callable[[], None]], threads: int) -> None:
        """Runs them beside the event loop, `threads` at a time, and returns when all are done."""
        ...

    def close(self) -> None: ...


class ThreadWorkers:
    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla-io")
        self._gentle = ThreadPoolExecutor(1, thread_name_prefix="ottla-gentle", initializer=_lower_priority)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_gently(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._gentle, work)

    async def run_all(self, works: Sequence[Callable[[], None]], threads: int) -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla-many")
        try:
            await asyncio.gather(*(loop.run_in_executor(pool, work) for work in works))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._gentle.shutdown(wait=True)


def _lower_priority() -> None:
    """Of this thread: Linux has priorities for each."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(
            os.PRIO_PROCESS, thread, niceness + _NICER_BY
        )  # the system takes what is beyond 19 for 19
