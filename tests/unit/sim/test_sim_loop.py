import asyncio
import gc

import pytest

from ottla.sim.loop import Deadlock, SimulationError, StepLimitReached, VirtualTimeLoop, run


def test_a_sleep_takes_no_real_time_and_advances_the_virtual_clock() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(3600)


def test_timers_fire_in_order() -> None:
    fired: list[int] = []

    async def wait(index: int) -> None:
        await asyncio.sleep(index)
        fired.append(index)

    async def main() -> None:
        await asyncio.gather(*(wait(index) for index in (5, 1, 4, 2, 3)))

    run(main())
    assert fired == [1, 2, 3, 4, 5]


def test_a_deadlock_is_an_error_that_names_the_waiting_task() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"nothing is ready.*main"):
        run(main())


def test_a_program_that_never_ends_reaches_the_step_limit() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(again := lambda: loop.call_soon(again))
        await loop.create_future()

    with pytest.raises(StepLimitReached, match="100 turns"):
        run(main(), step_limit=100)


def test_run_in_executor_is_rejected() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(SimulationError, match=r"env\.threads"):
        run(main())


def test_an_exception_in_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, int, "no number")
        await asyncio.sleep(2)

    with pytest.raises(SimulationError, match="no number"):
        run(main())


def test_an_exception_in_a_task_that_nobody_awaits_fails_the_run() -> None:
    async def fail() -> None:
        raise ValueError("forgotten")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task
        gc.collect()

    with pytest.raises(SimulationError, match="forgotten"):
        run(main())


def test_sets_of_tasks_and_futures_have_the_same_order_in_every_run() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        return [hash(loop.create_future()) for _ in range(3)]

    first = run(main())
    assert first == run(main()) == sorted(first)
