"""Serves metrics over HTTP on the broker's event loop.

A client sends one request and gets one response. Slow and hostile clients are bounded: by the bytes of a request, the
time for it and for the response, and the number of connections. If there are too many, the oldest that nobody waits for
is closed: one that has not sent its request, or does not read its response. One text is built at a time, in slices.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from http import HTTPStatus

from ottla.env.network import Binding, Listener, Network, Stream
from ottla.metrics import HttpRequest, HttpRequestError, RequestReader, TextFormat, choose_format, respond
from ottla.model.http_address import HttpAddress

logger = logging.getLogger("ottla.metrics")

CONNECTIONS_MAX = 16
REQUEST_TIMEOUT_S = 10.0
RESPONSE_TIMEOUT_S = 30.0
# A socket that is closed with unread bytes resets the connection, and the client may lose the response. So the client
# gets some time to close it.
LINGER_S = 1.0
PATH = "/metrics"
_BUFFER_BYTES = 4096
_PLAIN_TEXT = "text/plain; charset=utf-8"

Scrape = Callable[[TextFormat], Awaitable[list[bytes]]]


class MetricsEndpoint:
    def __init__(self, network: Network, scrape: Scrape) -> None:
        self._network = network
        self._scrape = scrape
        self._binding: Binding | None = None
        self._listener: Listener | None = None
        self._clients: dict[_Client, None] = {}  # oldest first
        self._is_building = asyncio.Lock()

    async def bind(self, address: HttpAddress) -> None:
        """Reserves the address. Raises OSError."""
        self._binding = await self._network.bind(address.host, address.port)

    @property
    def address(self) -> HttpAddress:
        assert self._binding is not None, "bind comes first"
        return HttpAddress(*self._binding.address)

    @property
    def connections(self) -> int:
        return len(self._clients)

    def serve(self) -> None:
        assert self._binding is not None, "bind comes first"
        self._listener = self._binding.listen(self._accept)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        elif self._binding is not None:
            self._binding.close()
        tasks = [client.task for client in self._clients if client.task is not None]
        for client in list(self._clients):
            client.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, stream: Stream) -> "_Client":
        if len(self._clients) >= CONNECTIONS_MAX:
            self._close_oldest()
        client = _Client(stream, self._respond, self._closed)
        if len(self._clients) < CONNECTIONS_MAX:
            self._clients[client] = None
            client.start()
        else:
            asyncio.get_running_loop().call_soon(stream.close)
        return client

    def _close_oldest(self) -> None:
        for states in (_IDLE, (_State.SENDING,)):
            oldest = next((client for client in self._clients if client.state in states), None)
            if oldest is not None:
                del self._clients[oldest]
                oldest.close()
                return

    def _closed(self, client: "_Client") -> None:
        self._clients.pop(client, None)

    async def _respond(self, request: HttpRequest) -> list[bytes]:
        if request.path != PATH:
            return _error(HTTPStatus.NOT_FOUND, f"There is no {request.path}. Ask for {PATH}.")
        text_format = choose_format(request.headers.get("accept", ""))
        try:
            async with self._is_building:
                body = await self._scrape(text_format)
        except Exception:
            logger.exception("the metrics cannot be collected")
            return _error(
                HTTPStatus.INTERNAL_SERVER_ERROR, "The metrics cannot be collected. See the broker's log."
            )
        return respond(HTTPStatus.OK, text_format.content_type, body, with_body=request.method == "GET")


def _error(status: HTTPStatus, message: str) -> list[bytes]:
    return respond(status, _PLAIN_TEXT, [f"{message}\n".encode(errors="replace")])


class _State(Enum):
    READING = "reading the request"
    BUILDING = "building the response"
    SENDING = "sending the response"
    LINGERING = "waiting for the client to close"


_IDLE = (_State.READING, _State.LINGERING)


class _Client:
    """A Receiver (see ottla.env.network)."""

    def __init__(
        self,
        stream: Stream,
        get_response: Callable[[HttpRequest], Awaitable[list[bytes]]],
        on_closed: "Callable[[_Client], None]",
    ) -> None:
        self.state = _State.READING
        self.task: asyncio.Task[None] | None = None
        self._stream = stream
        self._get_response = get_response
        self._on_closed = on_closed
        self._reader = RequestReader()
        self._buffer = bytearray(_BUFFER_BYTES)
        self._deadline: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._set_deadline(REQUEST_TIMEOUT_S)

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        if self.state is not _State.READING:
            return  # these bytes belong to no request
        try:
            request = self._reader.receive(self._buffer[:count])
        except HttpRequestError as error:
            self._send(_error(error.status, str(error)))
            return
        if request is not None:
            self.state = _State.BUILDING
            self._stream.pause_reading()
            self._set_deadline(RESPONSE_TIMEOUT_S)
            self.task = asyncio.get_running_loop().create_task(self._serve(request))

    async def _serve(self, request: HttpRequest) -> None:
        self._send(await self._get_response(request))

    def _send(self, response: list[bytes]) -> None:
        self.state = _State.SENDING
        if self._stream.send(response):
            self.drained()

    def drained(self) -> None:
        self.state = _State.LINGERING
        self._set_deadline(LINGER_S)
        self._stream.resume_reading()

    def close(self) -> None:
        self._stream.close()

    def closed(self, error: OSError | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self.task is not None:
            self.task.cancel()
        self._on_closed(self)

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.close)
