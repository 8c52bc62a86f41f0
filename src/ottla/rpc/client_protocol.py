"""The client's side of one connection, without I/O: frames requests and matches responses to them.

A shell does the I/O: it sends the bytes of `send_request`, fills `buffer()` with received bytes and calls `received`.
It may be a blocking socket, or a `Receiver` of `ottla.env.network`, which has methods of the same names.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.primitives import MALFORMED, NO_TAGS, encode_string, skip_tags

# Larger than any response that a broker sends to our requests. What an HTTP server sends, read as a size, is larger.
RESPONSE_BYTES_MAX = 1 << 30

_REQUEST_HEADER = Struct(">ihhi")  # size, API key, version, correlation id
_RESPONSE_HEADER = Struct(">ii")  # size, correlation id
_SIZE_BYTES = 4
_CORRELATION_ID_MAX = 0x7FFFFFFF


class ResponseError(ConnectionError):
    """The other side sent bytes that are not the response to a request in flight: close the connection."""


class Response(NamedTuple):
    correlation_id: int
    body: memoryview  # without the response header


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """A frame: the size, the request header (v1, or v2 in flexible versions) and the body."""
    rest = encode_string(client_id) + (NO_TAGS if _is_flexible(api_key, version) else b"")
    size = _REQUEST_HEADER.size - _SIZE_BYTES + len(rest) + len(body)
    return _REQUEST_HEADER.pack(size, api_key, version, correlation_id) + rest + body


def _is_flexible(api_key: ApiKey, version: int) -> bool:
    return version >= APIS[api_key].first_flexible


def _has_response_tags(api_key: ApiKey, version: int) -> bool:
    # KIP-511: ApiVersions has none, so that a client can read the response of a broker that lacks the version.
    return api_key is not ApiKey.API_VERSIONS and _is_flexible(api_key, version)


class ClientProtocol:
    """Any number of requests may be in flight; responses are matched to them by correlation id.

    The buffer never reaches beyond the response that is being read, so that a large body is received into its place
    and not copied. `allocate` returns memory for a body of at least the size that it is given.
    """

    def __init__(
        self,
        client_id: str | None,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        allocate: Callable[[int], bytearray] = bytearray,
    ) -> None:
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._allocate = allocate
        self._last_correlation_id = 0
        # By correlation id: whether the response header has tagged fields.
        self._in_flight: dict[int, bool] = {}
        self._header = bytearray(_RESPONSE_HEADER.size)
        self._body: memoryview | None = None  # None while the header is read
        self._unfilled = memoryview(self._header)

    def send_request(self, api_key: ApiKey, version: int, body: bytes) -> tuple[int, bytes]:
        """Returns the correlation id, and the bytes to send."""
        correlation_id = self._last_correlation_id % _CORRELATION_ID_MAX + 1
        frame = encode_request(api_key, version, correlation_id, self._client_id, body)
        self._last_correlation_id = correlation_id
        self._in_flight[correlation_id] = _has_response_tags(api_key, version)
        return correlation_id, frame

    def buffer(self) -> memoryview:
        """Where to put the next bytes that are received; never empty."""
        return self._unfilled

    def received(self, count: int) -> Response | None:
        """Takes `count` bytes that were put into `buffer()`. Returns a response once it is complete.

        A count of 0 means that the other side closed the connection. Raises ConnectionError then, and ResponseError
        for bytes that are not the response to a request in flight.
        """
        if count == 0:
            is_complete = self._body is None and len(self._unfilled) == len(self._header)
            where = "" if is_complete else " in the middle of a response"
            raise ConnectionError(f"the connection was closed{where}")
        self._unfilled = self._unfilled[count:]
        if self._unfilled:
            return None
        if self._body is None:
            self._body = self._unfilled = self._start_body()
            if self._unfilled:
                return None
        body, self._body, self._unfilled = self._body, None, memoryview(self._header)
        correlation_id = _RESPONSE_HEADER.unpack(self._header)[1]
        if self._in_flight.pop(correlation_id):
            body = _skip_header_tags(body)
        return Response(correlation_id, body)

    def _start_body(self) -> memoryview:
        size, correlation_id = _RESPONSE_HEADER.unpack(self._header)
        length = size - (_RESPONSE_HEADER.size - _SIZE_BYTES)
        if length < 0 or size > self._response_bytes_max:
            raise ResponseError(f"a response cannot have {size} bytes")
        if correlation_id not in self._in_flight:
            raise ResponseError(f"a response has the correlation id {correlation_id}, which no request has")
        return memoryview(self._allocate(length))[:length]


def _skip_header_tags(body: memoryview) -> memoryview:
    try:
        return body[skip_tags(body, 0) :]
    except MALFORMED as error:
        raise ResponseError(f"the tagged fields of a response header cannot be read: {error}") from None
