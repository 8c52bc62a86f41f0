"""A POST of HTTP/1.1 that ends at its deadline. It blocks: run it in a thread.

`urllib` has a timeout for each read of the socket, so a server that sends a byte now and then holds its caller for
ever, and one that sends much fills the memory. This reads the status line only.
"""

import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS = {"http": 80, "https": 443}
_STATUS_LINE_BYTES_MAX = 4096


class HttpPostError(OSError):
    """The server did not accept the request, or did not answer in HTTP."""


def post(url: str, body: bytes, headers: "Mapping[str, str]", timeout_s: float) -> None:
    """Raises OSError, also TimeoutError, and ValueError for an invalid URL. The name of the host is resolved without a
    deadline of ours: the resolver of the system has its own.
    """
    deadline = _Deadline(timeout_s)
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL of HTTP")
    request = _request_head(parts, len(body), headers) + body
    with _connect(parts, deadline) as connection:
        _send(connection, request, deadline)
        _check_status(_read_status_line(connection, deadline))


class _Deadline:
    def __init__(self, timeout_s: float) -> None:
        self._ends_s = time.monotonic() + timeout_s

    def apply_to(self, connection: socket.socket, parts: int = 1) -> None:
        """The next operation of `connection` may take one of so many equal parts of the time that is left."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s / parts)


def _request_head(parts: SplitResult, size: int, headers: "Mapping[str, str]") -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {
        "Host": parts.netloc.rpartition("@")[2],
        **headers,
        "Content-Length": str(size),
        "Connection": "close",
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")


def _connect(parts: SplitResult, deadline: _Deadline) -> socket.socket:
    host = parts.hostname or ""
    connection = _connect_to_any(host, parts.port or _PORTS[parts.scheme], deadline)
    if parts.scheme == "http":
        return connection
    with connection:  # after an error; otherwise the connection with TLS has taken the socket over
        import ssl  # takes 10 ms, and most receivers are on the same host

        deadline.apply_to(connection)
        return ssl.create_default_context().wrap_socket(connection, server_hostname=host)


def _connect_to_any(host: str, port: int, deadline: _Deadline) -> socket.socket:
    """Tries each address of the host, and leaves time for the others."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = HttpPostError(f"{host} has no address")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            deadline.apply_to(connection, len(addresses) - index)
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def _send(connection: socket.socket, data: bytes, deadline: _Deadline) -> None:
    left = memoryview(data)
    while left:
        deadline.apply_to(connection)
        left = left[connection.send(left) :]


def _read_status_line(connection: socket.socket, deadline: _Deadline) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < _STATUS_LINE_BYTES_MAX:
        deadline.apply_to(connection)
        received = connection.recv(_STATUS_LINE_BYTES_MAX)
        if not received:
            break
        data += received
    return data.partition(b"\n")[0]


def _check_status(line: bytes) -> None:
    version, _, rest = line.partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/1.") or not status.isdigit():
        raise HttpPostError(f"the server did not answer in HTTP/1.1, but with {line[:100]!r}")
    if not status.startswith(b"2"):
        raise HttpPostError(f"the server answered {rest[:100].strip()!r}")
