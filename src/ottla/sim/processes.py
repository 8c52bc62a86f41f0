"""Simulated child processes: the work runs on the event loop, with a delay before each item that it yields."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from ottla.sim.loop_watch import outside_loop

T = TypeVar("T")

_DELAY_S = 0.003


class NoThrottle:
    """Does not wait, because virtual time does not pass while work runs."""

    def set_limit(self, bytes_per_second: float) -> None: ...

    def __call__(self, size: int) -> None: ...


class SimProcesses:
    """The delays let a simulated crash fall between two items."""

    async def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        await asyncio.sleep(_DELAY_S)
        items = work()
        while (item := _next(items)) is not None:
            await asyncio.sleep(_DELAY_S)
            yield item

    def throttle(self) -> "NoThrottle":
        return NoThrottle()

    def end_idle(self) -> None:
        """There are no real processes."""

    def close(self) -> None:
        """There are no real processes."""


def _next(items: Iterator[T]) -> T | None:
    with outside_loop():
        return next(items, None)
