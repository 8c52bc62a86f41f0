"""Work that would block the event loop: fsync, cold reads, deletion of large files."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` beside the event loop and returns what it returns."""
        ...

    def close(self) -> None: ...


class ThreadWorkers:
    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="ottla-io")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
