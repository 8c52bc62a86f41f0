"""Coroutines that run beside a request, and end with the broker."""

import asyncio
import inspect

from ottla.broker.background_tasks import BackgroundTasks


def test_work_that_is_cancelled_before_it_begins_leaves_no_coroutine_behind() -> None:
    """Python warns of a coroutine that was never awaited."""
    has_begun = False

    async def work() -> None:
        nonlocal has_begun
        has_begun = True

    async def cancel_at_once() -> None:
        tasks = BackgroundTasks()
        coroutine = work()
        tasks.run(coroutine)
        await tasks.close()
        await asyncio.sleep(0)
        assert not has_begun
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED

    asyncio.run(cancel_at_once())
