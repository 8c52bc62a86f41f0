"""As much of HTTP/1.1 as a client of metrics needs: one request without a body, one response, and the end.

Both are plain bytes here; `ottla.broker.metrics.endpoint` has the sockets.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

REQUEST_BYTES_MAX = 8 * 1024
_METHODS = ("GET", "HEAD")
_END = b"\r\n\r\n"


class HttpRequestError(Exception):
    """A request that gets an error. `status` is that of the response."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]  # by name in lower case


class RequestReader:
    """Reads one request. Later bytes, such as a body, are ignored."""

    def __init__(self) -> None:
        self._received = bytearray()

    def receive(self, data: bytes | bytearray) -> HttpRequest | None:
        """None if the request is incomplete. Raises HttpRequestError."""
        searched = max(0, len(self._received) - len(_END))
        self._received += data
        end = self._received.find(_END, searched)
        if end > REQUEST_BYTES_MAX or (end < 0 and len(self._received) > REQUEST_BYTES_MAX):
            raise HttpRequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The request has more than {REQUEST_BYTES_MAX} bytes.",
            )
        return None if end < 0 else _parse(bytes(self._received[:end]).decode("latin-1"))


def _parse(text: str) -> HttpRequest:
    first, *rest = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise HttpRequestError(HTTPStatus.BAD_REQUEST, "This is not a request of HTTP/1.1.")
    if words[0] not in _METHODS:
        raise HttpRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET or HEAD.")
    headers: dict[str, str] = {}
    for header in rest:
        name, colon, value = header.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpRequestError(HTTPStatus.BAD_REQUEST, "A header of the request is malformed.")
        name = name.lower()
        # A list may be sent as several headers.
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return HttpRequest(words[0], words[1].partition("?")[0], headers)


def respond(
    status: HTTPStatus, content_type: str, body: Sequence[bytes], *, with_body: bool = True
) -> list[bytes]:
    """The parts of a response. The connection ends after it."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {sum(map(len, body))}\r\n"
        + ("Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else "")
        + "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return [head.encode(), *(body if with_body else ())]
