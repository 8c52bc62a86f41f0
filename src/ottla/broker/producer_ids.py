"""Assigns producer ids from blocks that the controller allocates (KIP-730)."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.background_tasks import BackgroundTasks
from ottla.core.controller.commands import ProducerIdBlock
from ottla.model.errors import ErrorCode, KafkaError

# Long enough for an election of the controller, so that a client rarely has to retry. The next requests of its
# connection wait too, so it must not be much longer. Kafka does not wait at all.
ALLOCATION_WAIT_S_MAX = 5.0


class ProducerIds:
    """All requests that need a new block wait for the same allocation. It goes on when they no longer wait."""

    def __init__(self, tasks: BackgroundTasks, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._tasks = tasks
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._allocation: asyncio.Future[KafkaError | None] | None = (
            None  # None if no allocation is in progress
        )

    async def next(self) -> int:
        """A producer id that was never used. A restart drops the rest of the current block.

        Raises COORDINATOR_LOAD_IN_PROGRESS if the controller allocates no block in time, as in Kafka: old clients take
        most other errors for fatal.
        """
        if self._next == self._end:
            try:
                async with asyncio.timeout(ALLOCATION_WAIT_S_MAX):
                    await self._wait_for_block()
            except TimeoutError:
                raise _not_allocated("it does not respond") from None
        self._next += 1
        return self._next - 1

    async def _wait_for_block(self) -> None:
        while self._next == self._end:
            if self._allocation is None:
                self._allocation = asyncio.get_running_loop().create_future()
                self._tasks.start(self._allocate_block(self._allocation))
            # A request that stops waiting must not cancel the future of the others.
            error = await asyncio.shield(self._allocation)
            if error is not None:
                raise _not_allocated(str(error))

    async def _allocate_block(self, allocation: "asyncio.Future[KafkaError | None]") -> None:
        result: KafkaError | None = KafkaError(ErrorCode.unknown_server_error, "the allocation failed")
        try:
            block = await self._allocate()
            self._next, self._end = block.first, block.first + block.size
            result = None
        except KafkaError as error:
            result = error
        finally:
            self._allocation = None
            allocation.set_result(result)


def _not_allocated(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.coordinator_load_in_progress,
        f"the controller has allocated no producer ids: {reason}. Try again in a moment",
    )
