"""Requests that confluent-kafka has no call for: each on a connection of its own to the broker that has to answer."""

import socket
import struct
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

from kio.serial import entity_writer

from ottla.admin.cluster import REQUEST_TIMEOUT_S, ClusterError, UnreachableError
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest

ResponseT = TypeVar("ResponseT")
_CLIENT_ID = b"ottla"
_CORRELATION_ID = 1
_NO_TAGS = b"\0"


class Node(NamedTuple):
    """A broker, and where it listens."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


def ask(node: Node, request: Any, response_type: type[ResponseT], what: str) -> ResponseT:
    """A message of kio and its answer, which is of the same version. `what` begins the sentence where it failed."""
    body = BytesIO()
    entity_writer(type(request))(body, request)
    header = struct.pack(">hhih", request.__api_key__, request.__version__, _CORRELATION_ID, len(_CLIENT_ID))
    header += _CLIENT_ID + (_NO_TAGS if request.__flexible__ else b"")
    try:
        answer = _exchange(node, header + body.getvalue())
    except OSError as error:
        raise UnreachableError(f"{what}: broker {node} does not answer ({error})") from None
    schema: Any = response_type
    begin = 4 + (len(_NO_TAGS) if schema.__header_schema__.__flexible__ else 0)
    try:
        response: ResponseT = entity_reader(schema)(memoryview(answer), begin)[0]
    except MalformedRequest as error:
        raise ClusterError(f"{what}: the answer of broker {node} cannot be read ({error})") from None
    return response


def _exchange(node: Node, payload: bytes) -> bytes:
    with socket.create_connection((node.host, node.port), timeout=REQUEST_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(payload)) + payload)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", _read(stream.read(4), 4))
            return _read(stream.read(length), length)


def _read(data: bytes, count: int) -> bytes:
    if len(data) < count:
        raise ConnectionError("it closed the connection")
    return data
