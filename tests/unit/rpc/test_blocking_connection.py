"""A connection on a real socket: whole responses, several in flight, and what happens when the broker goes away."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.rpc import Address, ApiKey, BlockingConnection, ResponseError

TIMEOUT_S = 10.0
Serve = Callable[[Callable[[socket.socket], None]], Address]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a listener that gives its one connection to a function, then closes it."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(talk: Callable[[socket.socket], None]) -> Address:
            def run() -> None:
                connection, _ = listener.accept()
                with connection:
                    talk(connection)

            threads.append(threading.Thread(target=run, daemon=True))
            threads[-1].start()
            return Address(*listener.getsockname())

        yield start
        for thread in threads:
            thread.join(TIMEOUT_S)


def read_request(connection: socket.socket) -> bytes:
    with connection.makefile("rb", buffering=0) as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        data = b""
        while len(data) < size:
            data += stream.read(size - len(data))
    return data


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def test_a_call_returns_the_body_of_its_response(serve: Serve) -> None:
    requests = []
    large = bytes(range(256)) * 4_000

    def talk(connection: socket.socket) -> None:
        requests.append(read_request(connection))
        connection.sendall(framed(1, large))

    with BlockingConnection(serve(talk), "me", TIMEOUT_S) as connection:
        assert connection.call(ApiKey.HEARTBEAT, 3, b"body") == large
    assert requests == [struct.pack(">hhih", 12, 3, 1, 2) + b"me" + b"body"]


def test_several_requests_may_be_in_flight(serve: Serve) -> None:
    def talk(connection: socket.socket) -> None:
        for _ in range(2):
            read_request(connection)
        connection.sendall(framed(1, b"one") + framed(2, b"two"))

    with BlockingConnection(serve(talk), "me", TIMEOUT_S) as connection:
        assert [connection.send(ApiKey.HEARTBEAT, 3, b"") for _ in range(2)] == [1, 2]
        responses = [connection.receive() for _ in range(2)]
    assert [(number, bytes(body)) for number, body in responses] == [(1, b"one"), (2, b"two")]


def test_a_call_does_not_take_the_response_to_another_request(serve: Serve) -> None:
    def talk(connection: socket.socket) -> None:
        for _ in range(2):
            read_request(connection)
        connection.sendall(framed(1, b""))

    with BlockingConnection(serve(talk), "me", TIMEOUT_S) as connection:
        connection.send(ApiKey.HEARTBEAT, 3, b"")
        with pytest.raises(ResponseError, match="another request"):
            connection.call(ApiKey.HEARTBEAT, 3, b"")


def test_a_broker_that_closes_the_connection_is_a_connection_error(serve: Serve) -> None:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(framed(1, b"body")[:-1])

    with (
        BlockingConnection(serve(talk), "me", TIMEOUT_S) as connection,
        pytest.raises(ConnectionError, match="in the middle of a response"),
    ):
        connection.call(ApiKey.HEARTBEAT, 3, b"")


def test_a_broker_that_sends_nothing_is_a_timeout(serve: Serve) -> None:
    is_over = threading.Event()

    def talk(_: socket.socket) -> None:
        is_over.wait(TIMEOUT_S)

    with BlockingConnection(serve(talk), "me", 0.05) as connection, pytest.raises(TimeoutError):
        connection.call(ApiKey.HEARTBEAT, 3, b"")
    is_over.set()


def test_an_address_where_nothing_listens_is_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
    with pytest.raises(ConnectionRefusedError):
        BlockingConnection(address, "me", TIMEOUT_S)
