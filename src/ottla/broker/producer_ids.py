"""Assigns producer ids from blocks that the controller allocates (KIP-730)."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.core.controller.commands import ProducerIdBlock


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocating = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that was never used. A restart drops the rest of the current block."""
        while self._next == self._end:
            async with self._allocating:
                if self._next == self._end:
                    block = await self._allocate()
                    self._next, self._end = block.first, block.first + block.size
        self._next += 1
        return self._next - 1
