"""Work in child processes: its items, its errors, its end."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from ottla.env.processes import ChildProcesses
from ottla.model.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.slow  # every test starts processes


def numbers(count: int) -> Iterator[int]:
    print("this goes to standard error, not between the results")
    yield from range(count)


def process_id() -> Iterator[int]:
    yield os.getpid()


def fail() -> Iterator[int]:
    yield 1
    raise KafkaError(ErrorCode.corrupt_message, "it cannot be read")


def die() -> Iterator[int]:
    os._exit(3)
    yield 1


def run_for_ever(path: str) -> Iterator[int]:
    yield os.getpid()
    while True:
        Path(path).touch()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_items_come_back_in_order_and_an_idle_process_is_used_again() -> None:
    async def main() -> int:
        processes = ChildProcesses(idle_s=0)
        assert [item async for item in processes.stream(partial(numbers, 5))] == [0, 1, 2, 3, 4]
        (first,) = [item async for item in processes.stream(process_id)]
        (second,) = [item async for item in processes.stream(process_id)]
        assert first == second != os.getpid()
        processes.end_idle()
        (third,) = [item async for item in processes.stream(process_id)]
        assert third != first
        processes.close()
        return first

    assert not is_running(asyncio.run(main()))


def test_an_idle_process_that_died_is_replaced() -> None:
    async def main() -> None:
        processes = ChildProcesses(idle_s=1000)
        (first,) = [item async for item in processes.stream(process_id)]
        processes.end_idle()
        (second,) = [item async for item in processes.stream(process_id)]
        assert first == second
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, first, os.WEXITED | os.WNOWAIT)
        (third,) = [item async for item in processes.stream(process_id)]
        assert third != first
        processes.close()
        assert not is_running(third)

    asyncio.run(main())


def test_an_error_of_the_work_is_raised_to_the_caller() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        with pytest.raises(KafkaError, match="it cannot be read") as raised:
            _ = [item async for item in processes.stream(fail)]
        assert raised.value.code is ErrorCode.corrupt_message
        assert [item async for item in processes.stream(partial(numbers, 1))] == [0]
        processes.close()

    asyncio.run(main())


def test_the_death_of_a_process_raises_an_error_with_its_status() -> None:
    async def main() -> None:
        processes = ChildProcesses()
        with pytest.raises(ChildProcessError, match="status 3"):
            _ = [item async for item in processes.stream(die)]
        processes.close()

    asyncio.run(main())


def test_closing_the_stream_kills_the_process(tmp_path: Path) -> None:
    async def main() -> None:
        processes = ChildProcesses()
        pids = []
        async with aclosing(processes.stream(partial(run_for_ever, str(tmp_path / "file")))) as items:
            async for pid in items:
                pids.append(pid)
                break
        assert not is_running(pids[0])
        processes.close()

    asyncio.run(main())
