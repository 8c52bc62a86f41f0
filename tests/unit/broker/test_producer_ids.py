"""Producer ids from blocks of the controller, whatever the controller does."""

import asyncio

import pytest

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.producer_ids import ALLOCATION_WAIT_S_MAX, ProducerIds
from ottla.core.controller.commands import ProducerIdBlock
from ottla.model.errors import ErrorCode, KafkaError
from ottla.sim.loop import run


class Controller:
    def __init__(self, delay_s: float = 0.01, error: Exception | None = None, block_size: int = 1000) -> None:
        self.calls = 0
        self.delay_s = delay_s
        self.error = error
        self.block_size = block_size

    async def allocate(self) -> ProducerIdBlock:
        self.calls += 1
        first = (self.calls - 1) * self.block_size
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        return ProducerIdBlock(first, self.block_size)


async def outcome(ids: ProducerIds) -> tuple[int | ErrorCode, float]:
    """The id, or the code of the error, and the time at which it came."""
    result: int | ErrorCode
    try:
        result = await ids.next()
    except KafkaError as error:
        result = error.code
    return result, asyncio.get_running_loop().time()


async def outcomes(ids: ProducerIds, count: int) -> list[tuple[int | ErrorCode, float]]:
    return await asyncio.gather(*(outcome(ids) for _ in range(count)))


def test_concurrent_requests_share_the_allocation_of_a_block() -> None:
    async def main() -> None:
        controller = Controller()
        ids = ProducerIds(BackgroundTasks(), controller.allocate)
        assert sorted(result for result, _ in await outcomes(ids, 10)) == list(range(10))
        assert [await ids.next() for _ in range(990)] == list(range(10, 1000))
        assert controller.calls == 1
        assert await ids.next() == 1000
        assert controller.calls == 2

    run(main())


def test_more_requests_than_a_block_has_ids_get_different_ids() -> None:
    async def main() -> None:
        controller = Controller(block_size=4)
        ids = ProducerIds(BackgroundTasks(), controller.allocate)
        assert sorted(result for result, _ in await outcomes(ids, 10)) == list(range(10))
        assert controller.calls == 3

    run(main())


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.not_controller, "no leader"), KafkaError(ErrorCode.stale_broker_epoch, "old")],
)
def test_requests_that_wait_for_a_failing_allocation_end_together_with_an_error_that_clients_retry(
    error: KafkaError,
) -> None:
    async def main() -> None:
        controller = Controller(2.0, error)
        ids = ProducerIds(BackgroundTasks(), controller.allocate)
        started_s = asyncio.get_running_loop().time()
        results = await outcomes(ids, 10)
        assert {result for result, _ in results} == {ErrorCode.coordinator_load_in_progress}
        assert {round(time_s - started_s, 3) for _, time_s in results} == {2.0}
        assert controller.calls == 1
        controller.error = None
        assert await ids.next() == 1000

    run(main())


def test_an_allocation_that_takes_too_long_is_used_by_later_requests() -> None:
    async def main() -> None:
        controller = Controller(30.0)
        ids = ProducerIds(BackgroundTasks(), controller.allocate)
        started_s = asyncio.get_running_loop().time()
        results = await outcomes(ids, 10)
        assert {result for result, _ in results} == {ErrorCode.coordinator_load_in_progress}
        assert {round(time_s - started_s, 3) for _, time_s in results} == {ALLOCATION_WAIT_S_MAX}
        await asyncio.sleep(30)
        assert await ids.next() == 0
        assert controller.calls == 1

    run(main())


def test_a_request_that_is_cancelled_does_not_disturb_the_others() -> None:
    async def main() -> None:
        controller = Controller(1.0)
        ids = ProducerIds(BackgroundTasks(), controller.allocate)
        waiting = [asyncio.ensure_future(ids.next()) for _ in range(3)]
        await asyncio.sleep(0.5)
        waiting[0].cancel()
        assert sorted(await asyncio.gather(*waiting[1:])) == [0, 1]
        assert controller.calls == 1

    run(main())


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_a_stop_ends_the_allocation_and_leaves_no_exception_behind(delay_s: float) -> None:
    async def main() -> None:
        unhandled: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        controller, tasks = (
            Controller(1.0, KafkaError(ErrorCode.not_controller, "no leader")),
            BackgroundTasks(),
        )
        ids = ProducerIds(tasks, controller.allocate)
        waiting = asyncio.ensure_future(outcome(ids))
        await asyncio.sleep(delay_s)
        await tasks.close()
        assert (await waiting)[0] is ErrorCode.coordinator_load_in_progress
        del ids, waiting
        assert unhandled == []

    run(main())
