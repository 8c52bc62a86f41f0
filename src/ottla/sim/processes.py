"""Worker processes, as the event loop sees them: items that come later, and a kill that may fall between two."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_DELAY_S = 0.003


class NoThrottle:
    """Virtual time does not pass while work runs."""

    def set_limit(self, bytes_per_second: float) -> None: ...

    def __call__(self, size: int) -> None: ...


class SimProcesses:
    """Runs the work inline, a piece at a time."""

    async def stream(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        await asyncio.sleep(_DELAY_S)
        for item in work():
            await asyncio.sleep(_DELAY_S)
            yield item

    def throttle(self) -> "NoThrottle":
        return NoThrottle()

    def release(self) -> None:
        """There is nothing to let go of."""

    def close(self) -> None:
        """There is nothing to end."""
