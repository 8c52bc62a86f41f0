"""The end of the process of a node, seen through a connection to it."""

import socket
from collections.abc import Iterator

import pytest

from ottla.admin.node_process import NodeProcess
from ottla.rpc import Address
from ottla.testing.helpers import wait_until

TIMEOUT_S = 30


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def address_of(listener: socket.socket) -> Address:
    return Address("127.0.0.1", listener.getsockname()[1])


def test_a_process_runs_until_its_connection_ends(listener: socket.socket) -> None:
    with NodeProcess(address_of(listener)) as process:
        connection, _ = listener.accept()
        connection.settimeout(TIMEOUT_S)
        for _ in range(3):
            assert not process.has_ended()
            assert connection.recv(1024)  # a request, so that the connection is not idle
            connection.sendall(b"a response")
        connection.close()
        assert wait_until(process.has_ended, TIMEOUT_S)


def test_a_process_that_reads_nothing_runs(listener: socket.socket) -> None:
    """As one that is paused: the requests fill the buffers of its connection."""
    with NodeProcess(address_of(listener)) as process:
        connection, _ = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        process._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        assert not any(process.has_ended() for _ in range(10_000))
        connection.close()  # with unread requests, this resets the connection
        assert wait_until(process.has_ended, TIMEOUT_S)


def test_no_process_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = address_of(listener)
    with pytest.raises(OSError):
        NodeProcess(address)
