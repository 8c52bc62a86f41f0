"""One request over a connection of its own: what comes back, and what is said when nothing sensible does."""

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
from ottla.admin.wire import Node, ask
from ottla.model.errors import ErrorCode

Answering = Callable[[bytes], Node]
CORRELATION = struct.pack(">i", 1)
DESCRIBE = DescribeTransactionsRequest(transactional_ids=())
# Throttle time, one transaction without error: id, state, timeout, start (none), producer id and epoch, no topics.
EMPTY_TRANSACTION = (
    bytes(4) + b"\x02\x00\x00\x02t\x06Empty" + struct.pack(">iqqh", 60_000, -1, 4000, 0) + b"\x01\x00\x00"
)


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A listener that reads one request and sends the bytes it was given, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(answer: bytes) -> Node:
            threading.Thread(target=serve, args=(answer,), daemon=True).start()
            return Node(1, *listener.getsockname())

        def serve(answer: bytes) -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                (length,) = struct.unpack(">i", stream.read(4))
                requests.append(stream.read(length))
                connection.sendall(answer)

        yield start


requests: list[bytes] = []


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_a_flexible_version_has_tags_in_both_headers(answering: Answering) -> None:
    node = answering(framed(CORRELATION + b"\0" + EMPTY_TRANSACTION))
    (found,) = ask(node, DESCRIBE, DescribeTransactionsResponse, "x").transaction_states
    assert (found.transaction_state, found.producer_id, found.transaction_start_time) == ("Empty", 4000, None)
    assert requests[-1] == struct.pack(">hhih", 65, 0, 1, 5) + b"ottla\0\x01\0"


def test_an_older_version_has_none(answering: Answering) -> None:
    node = answering(framed(CORRELATION + struct.pack(">hii", 24, 0, 0)))
    answer = ask(node, OffsetDeleteRequest(group_id="g", topics=()), OffsetDeleteResponse, "x")
    assert answer.error_code is ErrorCode.invalid_group_id
    assert requests[-1] == struct.pack(">hhih", 47, 0, 1, 5) + b"ottla\0\x01g" + bytes(4)


def test_a_connection_that_ends_is_told_with_the_broker(answering: Answering) -> None:
    node = answering(framed(CORRELATION + b"\0")[:-1])
    with pytest.raises(UnreachableError, match=r"^It failed: broker 1 \(127.0.0.1:\d+\) does not answer"):
        ask(node, DESCRIBE, DescribeTransactionsResponse, "It failed")


def test_an_answer_that_makes_no_sense_is_told_with_the_broker(answering: Answering) -> None:
    node = answering(framed(CORRELATION + b"\0" + b"\xff" * 20))
    with pytest.raises(ClusterError, match=r"^It failed: the answer of broker 1 .* cannot be read"):
        ask(node, DESCRIBE, DescribeTransactionsResponse, "It failed")


def test_a_port_where_nobody_listens_is_told(answering: Answering) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = Node(3, *listener.getsockname())
    with pytest.raises(UnreachableError, match=r"broker 3 \(127.0.0.1:\d+\) does not answer"):
        ask(node, DESCRIBE, DescribeTransactionsResponse, "x")
