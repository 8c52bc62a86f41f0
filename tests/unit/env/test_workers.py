"""Work beside the event loop."""

import asyncio
import os
import sys
import threading

import pytest

from ottla.env.workers import ThreadWorkers


def test_several_run_at_a_time_and_gentle_ones_one_after_the_other() -> None:
    together, alone = threading.Barrier(2, timeout=30), threading.Lock()

    def meet() -> None:
        together.wait()

    def be_alone() -> bool:
        is_alone = alone.acquire(blocking=False)
        if is_alone:
            alone.release()
        return is_alone

    async def main() -> None:
        workers = ThreadWorkers(2)
        await asyncio.gather(workers.run(meet), workers.run(meet))
        assert all(await asyncio.gather(*(workers.run_gently(be_alone) for _ in range(50))))
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
