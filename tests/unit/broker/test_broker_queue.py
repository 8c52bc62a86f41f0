"""Items for other brokers, in one request at a time to each."""

import asyncio

import pytest

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.broker_queue import ELEMENTS_PER_REQUEST_MAX, BrokerQueue
from ottla.broker.promise import Promise
from ottla.model.errors import ErrorCode, KafkaError
from ottla.sim.loop import run


class Broker:
    """Responds when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, list[str]]] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.results_left_out = 0

    async def send(self, broker_id: int, items: list[str]) -> list[str]:
        self.requests.append((broker_id, items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return [item.upper() for item in items][self.results_left_out :]


def raise_failure(error: Exception) -> None:
    raise error


def values(*promises: Promise[str | KafkaError]) -> list[str | ErrorCode]:
    return [each.value.code if isinstance(each.value, KafkaError) else each.value for each in promises]


def test_items_that_come_while_a_request_is_in_flight_are_in_the_next_one() -> None:
    async def main() -> None:
        broker, tasks = Broker(), BackgroundTasks()
        queue = BrokerQueue(tasks, broker.send, len)
        first = queue.submit(1, "a")
        await asyncio.sleep(0.01)
        later = [queue.submit(1, item) for item in "bc"]
        other = queue.submit(2, "d")
        await asyncio.sleep(0.01)
        assert broker.requests == [(1, ["a"]), (2, ["d"])]
        broker.gate.set()
        await asyncio.sleep(0.01)
        assert broker.requests[2:] == [(1, ["b", "c"])]
        assert values(first, *later, other) == ["A", "B", "C", "D"]

    run(main())


def test_a_broker_that_does_not_respond_gives_every_item_an_error_and_is_asked_again_later() -> None:
    async def main() -> None:
        broker, tasks = Broker(), BackgroundTasks()
        broker.gate.set()
        queue = BrokerQueue(tasks, broker.send, len)
        broker.error = ConnectionError("gone")
        lost = [queue.submit(1, item) for item in "ab"]
        await asyncio.sleep(0.01)
        assert values(*lost) == [ErrorCode.network_exception] * 2
        broker.error = KafkaError(ErrorCode.not_coordinator, "moved")
        moved = queue.submit(1, "c")
        await asyncio.sleep(0.01)
        assert values(moved) == [ErrorCode.not_coordinator]
        broker.error = None
        good = queue.submit(1, "d")
        await asyncio.sleep(0.01)
        assert values(good) == ["D"]

    run(main())


def test_a_request_has_a_limited_number_of_elements_and_the_rest_follows() -> None:
    async def main() -> None:
        broker, tasks = Broker(), BackgroundTasks()
        broker.gate.set()
        queue = BrokerQueue(tasks, broker.send, len)
        items = [str(number % 10) * 100 for number in range(ELEMENTS_PER_REQUEST_MAX // 10)]
        items.insert(3, "x" * (2 * ELEMENTS_PER_REQUEST_MAX))  # more than the limit by itself
        results = [queue.submit(1, item) for item in items]
        await asyncio.sleep(0.01)
        assert values(*results) == [item.upper() for item in items]
        assert [item for _, sent in broker.requests for item in sent] == items
        sizes = [sum(map(len, sent)) for _, sent in broker.requests]
        assert sizes == [300, 2 * ELEMENTS_PER_REQUEST_MAX, *[ELEMENTS_PER_REQUEST_MAX] * 9, 700]

    run(main())


@pytest.mark.parametrize(("error", "results_left_out"), [(ValueError("a bug"), 0), (None, 1)])
def test_an_unexpected_error_completes_all_items_and_later_ones_are_sent(
    error: ValueError | None, results_left_out: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker, tasks = Broker(), BackgroundTasks()
        broker.error, broker.results_left_out = error, results_left_out
        queue = BrokerQueue(tasks, broker.send, len)
        failed = [queue.submit(1, item) for item in "ab"]
        await asyncio.sleep(0.01)
        failed.append(queue.submit(1, "c"))
        broker.gate.set()
        await asyncio.sleep(0.01)
        assert values(*failed) == [ErrorCode.unknown_server_error] * 3
        assert "a request to broker 1 failed" in caplog.text
        broker.error, broker.results_left_out = None, 0
        later = queue.submit(1, "d")
        await asyncio.sleep(0.01)
        assert values(later) == ["D"]

    run(main())


def test_a_subscriber_that_fails_does_not_affect_the_other_items(caplog: pytest.LogCaptureFixture) -> None:
    def fail(result: object) -> None:
        raise ValueError("a bug")

    async def main() -> None:
        broker, tasks = Broker(), BackgroundTasks()
        broker.gate.set()
        queue = BrokerQueue(tasks, broker.send, len)
        queue.submit(1, "a").subscribe(fail, raise_failure)
        same_request = queue.submit(1, "b")
        await asyncio.sleep(0.01)
        later = queue.submit(1, "c")
        await asyncio.sleep(0.01)
        assert values(same_request, later) == ["B", "C"]
        assert "cannot be used" in caplog.text

    run(main())
