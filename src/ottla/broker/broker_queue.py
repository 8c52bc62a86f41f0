"""Collects what is to be sent to other brokers: one request at a time to each, with the items that have come meanwhile.

The busier a broker is, the more items a request has, so that many small requests do not make it busier.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.promise import Promise
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError

# For the way there and back, on top of the time that the other broker has.
_NETWORK_S = 5.0

# Encoding them takes a few milliseconds of the event loop. A broker closes the connection if a request has more than
# `ELEMENTS_MAX` elements, and then all items would fail again and again.
ELEMENTS_PER_REQUEST_MAX = 1000

logger = logging.getLogger("ottla.broker")

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class _Queued(NamedTuple, Generic[ItemT, ResultT]):
    item: ItemT
    result: "Promise[ResultT | KafkaError]"


class BrokerQueue(Generic[ItemT, ResultT]):
    """`send(broker_id, items)` returns a result for each item, in order. It may raise OSError and KafkaError.

    `weight(item)` is the number of elements that the item adds to the arrays of a request.
    """

    def __init__(
        self,
        tasks: BackgroundTasks,
        send: Callable[[int, list[ItemT]], Awaitable[list[ResultT]]],
        weight: Callable[[ItemT], int],
    ) -> None:
        self._tasks = tasks
        self._send = send
        self._weight = weight
        self._queues: dict[int, deque[_Queued[ItemT, ResultT]]] = {}  # of brokers with a request in flight

    def submit(self, broker_id: int, item: ItemT) -> "Promise[ResultT | KafkaError]":
        """The result, or NETWORK_EXCEPTION if the broker does not respond: it may have received the item then."""
        result: Promise[ResultT | KafkaError] = Promise()
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = deque()
            self._tasks.start(self._run(broker_id, queue))
        queue.append(_Queued(item, result))
        return result

    async def _run(self, broker_id: int, queue: deque[_Queued[ItemT, ResultT]]) -> None:
        try:
            while queue:
                queued = self._take(queue)
                results = await self._results(broker_id, [each.item for each in queued])
                for each, result in zip(queued, results, strict=True):
                    _complete(each.result, result)
        finally:
            del self._queues[broker_id]

    def _take(self, queue: deque[_Queued[ItemT, ResultT]]) -> list[_Queued[ItemT, ResultT]]:
        """The items of the next request: at least one, and no more than the limit allows."""
        taken = [queue.popleft()]
        left = ELEMENTS_PER_REQUEST_MAX - self._weight(taken[0].item)
        while queue and (left := left - self._weight(queue[0].item)) >= 0:
            taken.append(queue.popleft())
        return taken

    async def _results(self, broker_id: int, items: list[ItemT]) -> list[ResultT | KafkaError]:
        try:
            results = await self._send(broker_id, items)
            assert len(results) == len(items), "every item has a result"
            return [*results]
        except KafkaError as error:
            failure = error
        except OSError as error:
            failure = KafkaError(ErrorCode.network_exception, f"broker {broker_id} does not respond: {error}")
        except Exception:  # a bug with one item must not stop the items of others
            logger.exception("a request to broker %d failed", broker_id)
            message = f"a request to broker {broker_id} failed; see the log of this broker"
            failure = KafkaError(ErrorCode.unknown_server_error, message)
        return [failure] * len(items)


def _complete(promise: "Promise[ResultT | KafkaError]", result: ResultT | KafkaError) -> None:
    try:
        promise.complete(result)
    except Exception:  # a bug of one subscriber must not affect the others
        logger.exception("the result of a request to another broker cannot be used")


def response_timeout_s(config: BrokerConfig) -> float:
    """How long to wait for a response. The other broker may wait for replicas for all of `request.timeout.ms`, and its
    response then says which items are done.
    """
    return config.get_int("request.timeout.ms") / 1000 + _NETWORK_S
