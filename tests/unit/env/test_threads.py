"""Threads for work that would block the event loop."""

import asyncio
import os
import sys
import threading
from functools import partial

import pytest

from ottla.env.threads import RealThreads


def test_work_runs_in_parallel_and_background_work_runs_one_call_at_a_time() -> None:
    is_other_there = threading.Event()

    def meet(together: threading.Barrier) -> None:
        together.wait()

    def look_for_other() -> bool:
        return is_other_there.wait(timeout=0.3)

    async def main() -> None:
        threads, together = RealThreads(2), threading.Barrier(2, timeout=30)
        await asyncio.gather(*(threads.run(partial(meet, together)) for _ in range(2)))
        first = threads.run_in_background(look_for_other)
        second = threads.run_in_background(is_other_there.set)
        assert await asyncio.gather(first, second) == [False, None]  # type: ignore[comparison-overlap]  # mypy expects a tuple
        threads.close()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_only_the_background_thread_has_a_low_priority() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def main() -> None:
        threads = RealThreads(1)
        own = niceness()
        assert await threads.run_in_background(niceness) == min(own + 10, 19)
        assert await threads.run(niceness) == own == niceness()
        threads.close()

    asyncio.run(main())


def test_errors_of_the_work_are_raised_to_the_caller() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    async def main() -> None:
        threads = RealThreads(1)
        for run in (threads.run, threads.run_in_background, threads.run_detached):
            with pytest.raises(OSError, match="the disk is gone"):
                await run(fail)
        threads.close()

    asyncio.run(main())


def test_detached_work_that_hangs_delays_neither_other_work_nor_the_end() -> None:
    is_stopped = threading.Event()

    def hang() -> bool:
        return is_stopped.wait(timeout=60)

    async def main() -> None:
        threads = RealThreads(1)
        hanging = [asyncio.ensure_future(threads.run_detached(hang)) for _ in range(2)]
        assert await asyncio.wait_for(threads.run_in_background(lambda: "deleted"), 30) == "deleted"
        assert await asyncio.wait_for(threads.run(lambda: "flushed"), 30) == "flushed"
        assert await asyncio.wait_for(threads.run_detached(lambda: "sent"), 30) == "sent"
        threads.close()
        assert not any(future.done() for future in hanging)

    asyncio.run(main())  # cancels the futures
    detached = [thread for thread in threading.enumerate() if thread.name == "ottla-detached"]
    assert len(detached) == 2
    assert all(thread.daemon for thread in detached)
    is_stopped.set()  # their results have no loop any more
    for thread in detached:
        thread.join(timeout=30)
