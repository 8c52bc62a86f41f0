"""Listeners that answer requests with prepared kio messages, in place of the nodes of a cluster."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from ottla.admin.cluster import Cluster
from ottla.rpc.messages import encode_message

Requests = list[tuple[int, int]]  # API key, version
NO_TAGS = b"\0"


@contextmanager
def fake_node(responses: Mapping[int, Any]) -> Iterator[tuple[str, Requests]]:
    """Yields its address, and the requests that it gets. A request without a response closes the connection.

    `responses` are by API key: a message of a flexible version, or a list of messages, one for each request.
    """
    requests: Requests = []
    left = {key: list(value) if isinstance(value, list) else value for key, value in responses.items()}

    def respond(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                key, version, correlation_id = struct.unpack_from(">hhi", frame)
                requests.append((key, version))
                response = left.get(key)
                response = response.pop(0) if isinstance(response, list) else response
                if response is None:
                    return
                body = struct.pack(">i", correlation_id) + NO_TAGS + encode_message(response)
                connection.sendall(struct.pack(">i", len(body)) + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, respond), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", requests
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, respond: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        respond(connection)


def cluster_at(bootstrap: str, **attributes: Any) -> Cluster:
    cluster: Any = SimpleNamespace(bootstrap=bootstrap, **attributes)
    return cluster
