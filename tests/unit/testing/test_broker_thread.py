"""A broker that does not respond: the error says so, and where the broker's thread is."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.node import Broker
from ottla.testing import Kafka, broker_thread
from ottla.testing.broker_thread import BrokerThread

pytestmark = pytest.mark.slow


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


def thread_of(kafka: Kafka) -> BrokerThread:
    assert kafka._thread is not None
    return kafka._thread


def test_a_broker_that_does_not_stop_is_reported(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    is_free = threading.Event()

    def block_the_thread() -> None:
        is_free.wait()

    loop = thread_of(kafka)._loop
    assert loop is not None
    loop.call_soon_threadsafe(block_the_thread)
    monkeypatch.setattr(broker_thread, "_STOP_TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError, match=r"did not stop(.|\n)*within 0.2 s(.|\n)*block_the_thread"):
        kafka.stop()
    assert thread_of(kafka).is_running
    monkeypatch.undo()
    is_free.set()
    kafka.restart()
    assert kafka.create_topic()


def test_a_call_that_does_not_end_is_reported_and_cancelled(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_cancelled = threading.Event()

    async def hang(broker: Broker) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    monkeypatch.setattr(broker_thread, "_CALL_TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError, match=r"did not complete what the test asked of it within 0.2 s"):
        thread_of(kafka).call(hang)
    assert was_cancelled.wait(10)


def test_a_timeout_that_the_call_itself_raises_is_its_result(kafka: Kafka) -> None:
    async def fail(broker: Broker) -> None:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match=r"^of the call$"):
        thread_of(kafka).call(fail)


def test_a_broker_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*arguments: Any) -> Broker:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Broker, "start", never)
    monkeypatch.setattr(broker_thread, "_START_TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError, match=r"the broker did not start within 0.2 s. Check"):
        Kafka().start()
