"""A connection that also measures how long requests wait to be served, and how long responses take to be sent."""

from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.connection import ClientConnection


class SentResponse(Protocol):
    """What is told of a response when the socket has taken it. Times are in nanoseconds."""

    def sent(self, arrived_ns: int, waited_ns: int, send_ns: int, now_ns: int) -> None: ...


class MeasuredConnection(ClientConnection):
    def __init__(self, monotonic_ns: Callable[[], int], *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._monotonic_ns = monotonic_ns
        # While requests wait nothing is read. So all that wait have arrived with the last read.
        self.received_ns = 0
        # Responses in the order of the requests: whom to tell, when the request arrived, when the response was ready.
        self.unsent: list[tuple[SentResponse, int, int]] = []
        self._in_socket: list[tuple[SentResponse, int, int]] = []
        self._send_began_ns = 0

    def received(self, count: int) -> None:
        self.received_ns = self._monotonic_ns()
        self.received_bytes += count
        super().received(count)

    def drained(self) -> None:
        self._told()
        super().drained()

    def _flush(self) -> None:
        self._in_socket, self.unsent = self.unsent, []
        self._send_began_ns = self._monotonic_ns()
        super()._flush()
        if not self._is_blocked:
            self._told()

    def _told(self) -> None:
        responses, self._in_socket = self._in_socket, []
        began_ns, now_ns = self._send_began_ns, self._monotonic_ns()
        for response, arrived_ns, ready_ns in responses:
            response.sent(arrived_ns, began_ns - ready_ns, now_ns - began_ns, now_ns)
