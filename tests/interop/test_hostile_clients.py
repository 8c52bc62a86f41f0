"""A client that misbehaves, on purpose or not, neither delays other clients nor increases the broker's memory."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.brokers import RunningBroker, run_ottla
from tests.interop.librdkafka import create_topic
from tests.interop.neighbour import Neighbour
from tests.interop.wire import address_of

MB = 1 << 20
ANNOUNCED = 100_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A separate broker, because memory is measured."""
    with run_ottla(tmp_path / "data") as running:
        create_topic(running.bootstrap, "neighbour")
        yield running


def connect(broker: RunningBroker) -> socket.socket:
    return socket.create_connection(address_of(broker.bootstrap), timeout=30.0)


def send_part(connection: socket.socket, size: int) -> None:
    """The beginning of a request of `ANNOUNCED` bytes."""
    connection.sendall(struct.pack(">i", ANNOUNCED))
    chunk = bytes(MB)
    for _ in range(size // MB):
        connection.sendall(chunk)


@pytest.mark.slow
def test_the_memory_of_incomplete_requests_is_freed_with_their_connections(
    broker: RunningBroker,
) -> None:
    with Neighbour(broker, "neighbour") as neighbour:
        for _ in range(30):
            with connect(broker) as connection:
                send_part(connection, 30 * MB)
        neighbour.wait_for_requests()
    assert neighbour.peak_kb - neighbour.before_kb < 250_000
    assert neighbour.after_kb - neighbour.before_kb < 60_000


@pytest.mark.slow
def test_memory_grows_with_received_bytes_and_not_with_announced_sizes(broker: RunningBroker) -> None:
    with contextlib.ExitStack() as stack, Neighbour(broker, "neighbour") as neighbour:
        for _ in range(1000):
            connection = stack.enter_context(connect(broker))
            connection.sendall(struct.pack(">i", ANNOUNCED) + b"x")
        neighbour.wait_for_requests()
    assert neighbour.peak_kb - neighbour.before_kb < 50_000


@pytest.mark.slow
def test_connections_above_their_share_of_memory_wait_and_the_others_are_served(tmp_path: Path) -> None:
    limit = {"queued.max.request.bytes": "60000000", "socket.request.max.bytes": "50000000"}
    with run_ottla(tmp_path / "data", set=limit) as broker, contextlib.ExitStack() as stack:
        create_topic(broker.bootstrap, "neighbour")
        with Neighbour(broker, "neighbour") as neighbour:
            senders = [stack.enter_context(connect(broker)) for _ in range(8)]
            for sender in senders:
                sender.setblocking(False)
                sender.send(struct.pack(">i", 40_000_000))
            sent = [0] * len(senders)
            chunk = bytes(MB)
            for _ in range(60):  # all but the last byte of each, if the broker reads it
                for index, sender in enumerate(senders):
                    with contextlib.suppress(BlockingIOError):
                        sent[index] += sender.send(chunk[: 39_999_999 - sent[index]])
                neighbour.wait_for_requests(1)
            assert sum(sent) < 8 * 39_999_999, "the broker took more than its limit allows"
            neighbour.wait_for_requests()
        assert neighbour.peak_kb - neighbour.before_kb < 150_000
