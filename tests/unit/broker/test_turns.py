"""Long work in slices: the order of its results, who waits for whom, and how it ends early."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.broker.pending import Pending, completed
from ottla.broker.topic_pieces import PARTITIONS_PER_PIECE, run_by_topic
from ottla.broker.turns import ITEMS_PER_TURN, LONG_WORK_ITEMS, TURN_MS, Turns


class HandClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


async def done(pending: Pending[Any]) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    pending.subscribe(future.set_result, future.set_exception)
    return await future


def test_few_items_are_done_at_once() -> None:
    @on_loop
    async def run() -> None:
        results = Turns(HandClock()).run(range(ITEMS_PER_TURN), lambda item: item + 1)
        assert results.done
        assert results.value == list(range(1, ITEMS_PER_TURN + 1))
        assert Turns(HandClock()).run((), completed).value == []


@pytest.mark.parametrize("number", [ITEMS_PER_TURN + 1, LONG_WORK_ITEMS + 1])
def test_many_items_are_done_in_slices_and_in_order(number: int) -> None:
    @on_loop
    async def run() -> None:
        begun: list[int] = []

        def work(item: int) -> Any:
            begun.append(item)
            return completed(item) if item % 3 else item

        results = Turns(HandClock()).run(range(number), work)
        most = 0
        while not results.done:
            before = len(begun)
            await asyncio.sleep(0)
            most = max(most, len(begun) - before)
        assert results.value == begun == list(range(number))
        assert most == ITEMS_PER_TURN


def test_a_slice_ends_when_its_time_is_over() -> None:
    @on_loop
    async def run() -> None:
        clock = HandClock()

        def slow(item: int) -> int:
            clock.ms += TURN_MS
            return item

        results = Turns(clock).run((1, 2, 3), slow)
        assert clock.ms == TURN_MS
        assert await done(results) == [1, 2, 3]


def test_short_work_does_not_wait_for_long_work_and_long_work_waits_for_long_work() -> None:
    @on_loop
    async def run() -> None:
        turns = Turns(HandClock())
        order: list[str] = []

        def start(name: str, number: int) -> Pending[list[None]]:
            results = turns.run(range(number), lambda item: order.append(name))
            return results.then(lambda values: order.append(f"{name} is done") or values)

        first, second = start("first", LONG_WORK_ITEMS + 1), start("second", LONG_WORK_ITEMS + 1)
        short = start("short", ITEMS_PER_TURN + 1)
        await done(short)
        assert not first.done
        await done(second)
        assert order.index("first is done") < order.index("second")


def test_work_that_nobody_wants_any_more_ends_and_lets_the_next_begin() -> None:
    @on_loop
    async def run() -> None:
        turns = Turns(HandClock())
        begun: list[int] = []
        has_begun = asyncio.Event()
        waits: Pending[int] = Pending()
        abandoned: list[bool] = []
        waits.on_abandon = lambda: abandoned.append(True)

        def work(item: int) -> Any:
            begun.append(item)
            has_begun.set()
            return waits if item == 0 else item

        first = turns.run(range(LONG_WORK_ITEMS + 1), work)
        second = turns.run(range(LONG_WORK_ITEMS + 1), lambda item: item)
        third = turns.run(range(LONG_WORK_ITEMS + 1), lambda item: item)
        await has_begun.wait()
        second.abandon()
        first.abandon()
        assert abandoned == [True]
        await done(third)
        assert len(begun) == ITEMS_PER_TURN


@pytest.mark.parametrize("fails_later", [False, True])
def test_an_error_fails_the_whole(fails_later: bool) -> None:
    @on_loop
    async def run() -> None:
        def work(item: int) -> Any:
            if item != ITEMS_PER_TURN:
                return item
            if not fails_later:
                raise ZeroDivisionError
            failing: Pending[int] = Pending()
            asyncio.get_running_loop().call_soon(failing.fail, ZeroDivisionError())
            return failing

        with pytest.raises(ZeroDivisionError):
            await done(Turns(HandClock()).run(range(ITEMS_PER_TURN * 2), work))


def test_a_topic_of_very_many_partitions_is_answered_whole_and_in_its_place() -> None:
    @on_loop
    async def run() -> None:
        topics = [
            ("a", range(3)),
            ("wide", range(PARTITIONS_PER_PIECE * 3 + 1)),
            ("none", range(0)),
            ("z", range(1)),
        ]
        answered = await done(
            run_by_topic(
                Turns(HandClock()),
                topics,
                lambda topic: topic[1],
                lambda topic, index: (topic[0], index),
                lambda topic, results: (topic[0], results),
            )
        )
        assert answered == [(name, tuple((name, index) for index in indexes)) for name, indexes in topics]
