"""Work in processes of its own: what it yields, its errors, its end."""

import asyncio
import io
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from ottla.env.child import Share, send_items
from ottla.env.processes import ChildProcesses
from ottla.model.errors import ErrorCode, KafkaError


def numbers(count: int) -> Iterator[int]:
    print("this goes to standard error, not between the answers")
    yield from range(count)


def process_id() -> Iterator[int]:
    yield os.getpid()


def with_steps() -> Iterator[int | None]:
    yield from (None, 1, None, 2)


def scheduling_policy() -> Iterator[int]:
    yield os.sched_getscheduler(0)


def refuse() -> Iterator[int]:
    yield 1
    raise KafkaError(ErrorCode.corrupt_message, "it cannot be read")


def die() -> Iterator[int]:
    os._exit(3)
    yield 1


def work_for_ever(path: str) -> Iterator[int]:
    yield os.getpid()
    while True:
        Path(path).touch()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_the_work_yields_comes_back_in_order_and_a_process_serves_again() -> None:
    async def main() -> None:
        processes = ChildProcesses(idle_s=0)
        assert [item async for item in processes.stream(partial(numbers, 5))] == [0, 1, 2, 3, 4]
        (first,) = [item async for item in processes.stream(process_id)]
        (second,) = [item async for item in processes.stream(process_id)]
        assert first == second != os.getpid()
        processes.release()
        assert not is_running(first)
        (third,) = [item async for item in processes.stream(process_id)]
        assert third != first
        processes.close()

    asyncio.run(main())


def test_a_process_is_kept_for_a_while_and_replaced_if_it_dies_meanwhile() -> None:
    async def main() -> None:
        processes = ChildProcesses(idle_s=1000)
        (first,) = [item async for item in processes.stream(process_id)]
        processes.release()
        (second,) = [item async for item in processes.stream(process_id)]
        assert first == second
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, first, os.WEXITED | os.WNOWAIT)
        (third,) = [item async for item in processes.stream(process_id)]
        assert third != first
        processes.close()
        assert not is_running(third)

    asyncio.run(main())


def test_steps_without_a_result_are_not_passed_on() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        assert [item async for item in processes.stream(with_steps)] == [1, 2]
        processes.close()

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="a policy of Linux")
def test_the_work_gives_way_to_everybody_else() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        assert [item async for item in processes.stream(scheduling_policy)] == [os.SCHED_IDLE]
        processes.close()

    asyncio.run(main())


def test_work_that_gets_next_to_nothing_of_the_processor_is_handed_on_where_it_stands() -> None:
    shares = iter([False, True])
    items, output = iter(["first", None, "second"]), io.BytesIO()
    assert send_items(items, output, lambda: next(shares))
    assert not send_items(items, output)
    output.seek(0)
    assert [pickle.load(output) for _ in range(2)] == [("item", "first"), ("item", "second")]


def test_the_share_of_a_processor_is_told_after_a_while() -> None:
    times = iter([(0.0, 0.0), (4.9, 0.0), (5.0, 0.6), (10.0, 1.0)])
    share = Share(lambda: next(times))
    assert [share.is_too_small() for _ in range(4)] == [False, False, False, True]


def test_an_error_of_the_work_is_raised_here_as_it_is() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        with pytest.raises(KafkaError, match="it cannot be read") as refused:
            _ = [item async for item in processes.stream(refuse)]
        assert refused.value.code is ErrorCode.corrupt_message
        assert [item async for item in processes.stream(partial(numbers, 1))] == [0]
        processes.close()

    asyncio.run(main())


def test_a_process_that_dies_is_an_error_that_says_so() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        with pytest.raises(ChildProcessError, match="status 3"):
            _ = [item async for item in processes.stream(die)]
        processes.close()

    asyncio.run(main())


def test_work_that_is_not_wanted_any_more_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        processes = ChildProcesses()
        pids = []
        async with aclosing(processes.stream(partial(work_for_ever, str(tmp_path / "file")))) as items:
            async for pid in items:
                pids.append(pid)
                break
        assert not is_running(pids[0])
        processes.close()

    asyncio.run(main())
