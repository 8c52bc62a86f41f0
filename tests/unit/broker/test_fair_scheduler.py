"""The fair scheduler: the order of results, which job waits for which, and how a job ends early."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import pytest

from ottla.broker.fair_scheduler import ITEMS_PER_SLICE, LONG_JOB_ITEMS, SLICE_MS, FairScheduler
from ottla.broker.promise import Promise, completed
from ottla.broker.topic_slices import PARTITIONS_PER_SLICE, run_by_topic


class Topic(NamedTuple):
    name: str
    partitions: Sequence[int]


class HandClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


async def done(promise: Promise[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    promise.subscribe(future.set_result, future.set_exception)
    return await future


def test_a_short_list_is_processed_at_once() -> None:
    @on_loop
    async def run() -> None:
        results = FairScheduler(HandClock()).run(range(ITEMS_PER_SLICE), lambda item: item + 1)
        assert results.done
        assert results.value == list(range(1, ITEMS_PER_SLICE + 1))
        assert FairScheduler(HandClock()).run((), completed).value == []


@pytest.mark.parametrize("number", [ITEMS_PER_SLICE + 1, LONG_JOB_ITEMS + 1])
def test_a_long_list_is_processed_in_slices_and_in_order(number: int) -> None:
    @on_loop
    async def run() -> None:
        begun: list[int] = []

        def work(item: int) -> Any:
            begun.append(item)
            return completed(item) if item % 3 else item

        results = FairScheduler(HandClock()).run(range(number), work)
        most = 0
        while not results.done:
            before = len(begun)
            await asyncio.sleep(0)
            most = max(most, len(begun) - before)
        assert results.value == begun == list(range(number))
        assert most == ITEMS_PER_SLICE


def test_a_slice_ends_when_its_time_is_over() -> None:
    @on_loop
    async def run() -> None:
        clock = HandClock()

        def slow(item: int) -> int:
            clock.ms += SLICE_MS
            return item

        results = FairScheduler(clock).run((1, 2, 3), slow)
        assert clock.ms == SLICE_MS
        assert await done(results) == [1, 2, 3]


def test_a_short_job_does_not_wait_for_a_long_one_but_long_jobs_run_one_at_a_time() -> None:
    @on_loop
    async def run() -> None:
        scheduler = FairScheduler(HandClock())
        order: list[str] = []

        def start(name: str, number: int) -> Promise[list[None]]:
            results = scheduler.run(range(number), lambda item: order.append(name))

            def note_the_end(values: list[None]) -> list[None]:
                order.append(f"{name} is done")
                return values

            return results.then(note_the_end)

        first, second = start("first", LONG_JOB_ITEMS + 1), start("second", LONG_JOB_ITEMS + 1)
        short = start("short", ITEMS_PER_SLICE + 1)
        await done(short)
        assert not first.done
        await done(second)
        assert order.index("first is done") < order.index("second")


def test_an_abandoned_job_ends_and_the_next_one_starts() -> None:
    @on_loop
    async def run() -> None:
        scheduler = FairScheduler(HandClock())
        begun: list[int] = []
        has_begun = asyncio.Event()
        waits: Promise[int] = Promise()
        abandoned: list[bool] = []
        waits.on_abandon = lambda: abandoned.append(True)

        def work(item: int) -> Any:
            begun.append(item)
            has_begun.set()
            return waits if item == 0 else item

        first = scheduler.run(range(LONG_JOB_ITEMS + 1), work)
        second = scheduler.run(range(LONG_JOB_ITEMS + 1), lambda item: item)
        third = scheduler.run(range(LONG_JOB_ITEMS + 1), lambda item: item)
        await has_begun.wait()
        second.abandon()
        first.abandon()
        assert abandoned == [True]
        await done(third)
        assert len(begun) == ITEMS_PER_SLICE


@pytest.mark.parametrize("fails_later", [False, True])
def test_an_error_fails_the_whole_job(fails_later: bool) -> None:
    @on_loop
    async def run() -> None:
        def work(item: int) -> Any:
            if item != ITEMS_PER_SLICE:
                return item
            if not fails_later:
                raise ZeroDivisionError
            failing: Promise[int] = Promise()
            asyncio.get_running_loop().call_soon(failing.fail, ZeroDivisionError())
            return failing

        with pytest.raises(ZeroDivisionError):
            await done(FairScheduler(HandClock()).run(range(ITEMS_PER_SLICE * 2), work))


def test_a_topic_with_many_partitions_has_one_result_in_the_order_of_the_request() -> None:
    @on_loop
    async def run() -> None:
        topics = [
            Topic("a", range(3)),
            Topic("wide", range(PARTITIONS_PER_SLICE * 3 + 1)),
            Topic("none", range(0)),
            Topic("z", range(1)),
        ]
        results = await done(
            run_by_topic(
                FairScheduler(HandClock()),
                topics,
                lambda topic, index: (topic.name, index),
                lambda topic, results: (topic.name, results),
            )
        )
        assert results == [(name, tuple((name, index) for index in indexes)) for name, indexes in topics]
