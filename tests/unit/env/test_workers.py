"""Work beside the event loop."""

import asyncio
import os
import sys
import threading
from functools import partial

import pytest

from ottla.env.workers import ThreadWorkers


def test_several_run_at_a_time_and_gentle_ones_one_after_the_other() -> None:
    is_other_there = threading.Event()

    def meet(together: threading.Barrier) -> None:
        together.wait()

    def look_for_other() -> bool:
        return is_other_there.wait(timeout=0.3)

    async def main() -> None:
        workers, together = ThreadWorkers(2), threading.Barrier(2, timeout=30)
        await asyncio.gather(*(workers.run(partial(meet, together)) for _ in range(2)))
        first, second = workers.run_gently(look_for_other), workers.run_gently(is_other_there.set)
        assert await asyncio.gather(first, second) == [False, None]
        workers.close()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_others_come_before_what_is_done_gently_and_only_before_that() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def main() -> None:
        workers = ThreadWorkers(1)
        own = niceness()
        assert await workers.run_gently(niceness) == min(own + 10, 19)
        assert await workers.run(niceness) == own == niceness()
        workers.close()

    asyncio.run(main())


def test_errors_come_back() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    async def main() -> None:
        workers = ThreadWorkers(1)
        for run in (workers.run, workers.run_gently):
            with pytest.raises(OSError, match="the disk is gone"):
                await run(fail)
        workers.close()

    asyncio.run(main())
