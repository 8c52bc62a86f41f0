"""Pushed metrics on their way to a collector of OpenTelemetry, which may do anything."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.broker_bench import until
from tests.unit.env.test_http_post import DONE_S, answer, drip, read_request, server, stay_silent
from tests.unit.metrics.test_client_series import GAUGE, metrics_data, resource_metrics

from ottla.broker.background_tasks import BackgroundTasks
from ottla.broker.metrics import forwarder as forwarder_module
from ottla.broker.metrics.clients import ClientMetrics
from ottla.broker.metrics.forwarder import QUEUE_MAX, OtlpForwarder
from ottla.broker.serial_thread import SerialThread
from ottla.core.client_telemetry import ClientInstance, ClientLabels, TelemetrySubscription
from ottla.env.clock import SystemClock
from ottla.env.threads import RealThreads
from ottla.metrics.otlp import RESOURCES_MAX

LABELS = ClientLabels("i", "app", "librdkafka", "2.16.0", "127.0.0.1", "40000")
GARBAGE = answer(b"\x00garbage\r\n" * 1000)


class Broker:
    """The parts of a broker that forward metrics, with real threads."""

    def __init__(self, url: str) -> None:
        self.threads = RealThreads(2)
        self.tasks = BackgroundTasks()
        config: Any = SimpleNamespace(get_str={"ottla.telemetry.otlp.url": url}.__getitem__)
        services: Any = SimpleNamespace(
            config=config, env=SimpleNamespace(threads=self.threads, clock=SystemClock()), tasks=self.tasks
        )
        self.metrics = ClientMetrics(services, SerialThread(self.threads, self.tasks))

    @property
    def forwarder(self) -> OtlpForwarder:
        assert self.metrics._forwarder is not None
        return self.metrics._forwarder

    async def push(self, data: bytes) -> None:
        instance = ClientInstance(LABELS, TelemetrySubscription(1, 1000, ("",)))
        await self.metrics.receive(instance, data)

    async def dropped(self) -> float:
        return float((await self.metrics.start()).finish()[2].split()[-1])


def run(url: str, main: Callable[[Broker], Awaitable[None]]) -> None:
    async def on_loop() -> None:
        broker = Broker(url)
        try:
            await asyncio.wait_for(main(broker), DONE_S)
        finally:
            await broker.tasks.close()
            broker.threads.close()

    asyncio.run(on_loop())


@pytest.mark.parametrize("serve", [stay_silent, drip], ids=["silent", "slow drip"])
def test_a_collector_that_hangs_holds_neither_deletions_nor_the_stop_of_the_broker(
    serve: Callable[[socket.socket], None],
) -> None:
    async def main(broker: Broker) -> None:
        await broker.push(metrics_data(GAUGE))
        await broker.push(metrics_data(GAUGE))
        # The timeout of a forward is longer.
        assert await asyncio.wait_for(broker.threads.run_in_background(lambda: "deleted"), 5) == "deleted"

    with server(serve) as url:
        run(url, main)


@pytest.mark.parametrize("serve", [stay_silent, drip, GARBAGE], ids=["silent", "slow drip", "garbage"])
def test_a_push_that_the_collector_does_not_take_in_time_is_dropped_counted_and_logged_once(
    serve: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(broker: Broker) -> None:
        await broker.push(metrics_data(GAUGE))
        await broker.push(metrics_data(GAUGE))
        await until(lambda: broker.forwarder.dropped == 2)
        assert await broker.dropped() == 2

    monkeypatch.setattr(forwarder_module, "TIMEOUT_S", 0.3)
    with caplog.at_level(logging.WARNING, "ottla.telemetry"), server(serve) as url:
        run(url, main)
    (message,) = caplog.messages
    assert message.startswith(f"metrics of clients cannot be sent to {url} (ottla.telemetry.otlp.url): ")


def test_pushes_are_sent_one_after_the_other_with_the_labels_of_the_client() -> None:
    received: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        received.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    async def main(broker: Broker) -> None:
        for _ in range(3):
            await broker.push(metrics_data(GAUGE))
        await until(lambda: len(received) == 3)
        assert await broker.dropped() == 0

    with server(serve) as url:
        run(url, main)
    assert all(b"client_software_name" in request and b"librdkafka" in request for request in received)


def test_a_push_of_many_resources_is_exposed_but_not_forwarded() -> None:
    received: list[bytes] = []

    async def main(broker: Broker) -> None:
        data = b"".join(resource_metrics(bytes([10, 1, n]), GAUGE) for n in range(RESOURCES_MAX + 1))
        await broker.push(data)
        assert await broker.dropped() == 1
        assert len((await broker.metrics.start()).items) == 1

    with server(lambda connection: received.append(read_request(connection))) as url:
        run(url, main)
    assert received == []


class HeldThreads:
    """Work waits until the test lets it end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.is_failing = True

    async def run_detached(self, work: Callable[[], Any]) -> None:
        await self.may_end.wait()
        if self.is_failing:
            raise ConnectionResetError("reset by peer")


def test_the_queue_is_limited_by_pushes_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_module, "QUEUE_BYTES_MAX", 10 * QUEUE_MAX)

    async def main() -> None:
        threads: Any = HeldThreads()
        tasks = BackgroundTasks()
        forwarder = OtlpForwarder("http://collector", threads, tasks)
        forwarder.forward(b"m" * 10)
        await asyncio.sleep(0)  # it is being sent, and left the queue
        for _ in range(QUEUE_MAX + 5):
            forwarder.forward(b"m")
        assert forwarder.dropped == 5
        threads.is_failing = False
        threads.may_end.set()
        await until(lambda: not forwarder._is_sending)
        forwarder.forward(b"m" * 10 * QUEUE_MAX)
        assert forwarder.dropped == 5
        forwarder.forward(b"m")
        assert forwarder.dropped == 6
        await tasks.close()

    asyncio.run(main())


def test_a_failure_is_logged_again_after_the_collector_has_taken_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        threads: Any = HeldThreads()
        threads.may_end.set()
        tasks = BackgroundTasks()
        forwarder = OtlpForwarder("http://collector", threads, tasks)
        for threads.is_failing in (True, True, False, True):
            forwarder.forward(b"m")
            await until(lambda: not forwarder._is_sending)
        assert forwarder.dropped == 3

    with caplog.at_level(logging.WARNING, "ottla.telemetry"):
        asyncio.run(main())
    assert len(caplog.messages) == 2
