"""A request to one broker on a connection of its own: the response, and the error when there is none."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse

from ottla.admin.cluster import ClusterError, UnreachableError
from ottla.admin.nodes import Node, call
from ottla.model.errors import ErrorCode

Responding = Callable[[bytes], Node]
CORRELATION = struct.pack(">i", 1)
DESCRIBE = DescribeTransactionsRequest(transactional_ids=())
# Throttle time, one transaction without error: id, state, timeout, start (none), producer id and epoch, no topics.
EMPTY_TRANSACTION = (
    bytes(4) + b"\x02\x00\x00\x02t\x06Empty" + struct.pack(">iqqh", 60_000, -1, 4000, 0) + b"\x01\x00\x00"
)


@pytest.fixture
def responding() -> Iterator[Responding]:
    """A listener that reads one request and sends the bytes it was given, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(response: bytes) -> Node:
            threading.Thread(target=serve, args=(response,), daemon=True).start()
            return Node(1, *listener.getsockname())

        def serve(response: bytes) -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                (length,) = struct.unpack(">i", stream.read(4))
                requests.append(stream.read(length))
                connection.sendall(response)

        yield start


requests: list[bytes] = []


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_a_flexible_version_has_tags_in_both_headers(responding: Responding) -> None:
    node = responding(framed(CORRELATION + b"\0" + EMPTY_TRANSACTION))
    (found,) = call(node, DESCRIBE, DescribeTransactionsResponse, "x").transaction_states
    # kio takes the field for a datetime, and reads -1 as None.
    start_time: object = found.transaction_start_time
    assert (found.transaction_state, found.producer_id, start_time) == ("Empty", 4000, None)
    assert requests[-1] == struct.pack(">hhih", 65, 0, 1, 5) + b"ottla\0\x01\0"


def test_an_older_version_has_no_tags(responding: Responding) -> None:
    node = responding(framed(CORRELATION + struct.pack(">hii", 24, 0, 0)))
    response = call(node, OffsetDeleteRequest(group_id="g", topics=()), OffsetDeleteResponse, "x")
    assert response.error_code is ErrorCode.invalid_group_id
    assert requests[-1] == struct.pack(">hhih", 47, 0, 1, 5) + b"ottla\0\x01g" + bytes(4)


def test_the_error_of_a_closed_connection_names_the_broker(responding: Responding) -> None:
    node = responding(framed(CORRELATION + b"\0")[:-1])
    with pytest.raises(UnreachableError, match=r"^It failed: broker 1 \(127.0.0.1:\d+\) does not respond"):
        call(node, DESCRIBE, DescribeTransactionsResponse, "It failed")


def test_the_error_of_a_malformed_response_names_the_broker(responding: Responding) -> None:
    node = responding(framed(CORRELATION + b"\0" + b"\xff" * 20))
    with pytest.raises(ClusterError, match=r"^It failed: the response of broker 1 .* cannot be read"):
        call(node, DESCRIBE, DescribeTransactionsResponse, "It failed")


def test_the_error_of_a_port_where_nothing_listens_names_the_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = Node(3, *listener.getsockname())
    with pytest.raises(UnreachableError, match=r"broker 3 \(127.0.0.1:\d+\) does not respond"):
        call(node, DESCRIBE, DescribeTransactionsResponse, "x")
