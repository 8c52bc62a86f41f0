"""The outstanding requests of a node: at most one to each receiver, with a pause after a failure."""

from ottla.core.raft.messages import Outbound, Request


class Outbox:
    def __init__(self, retry_backoff_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._last_number = 0
        self._in_flight: dict[int, int] = {}  # receiver: number
        self._retry_ms: dict[int, int] = {}

    def clear(self) -> None:
        """Forgets all requests. Responses that still arrive are ignored."""
        self._in_flight.clear()
        self._retry_ms.clear()

    @property
    def is_empty(self) -> bool:
        return not self._in_flight

    def next_retry_ms(self, now_ms: int) -> int | None:
        """When the next pause ends."""
        return min((retry_ms for retry_ms in self._retry_ms.values() if retry_ms > now_ms), default=None)

    def may_send_to(self, receiver: int, now_ms: int) -> bool:
        return receiver not in self._in_flight and now_ms >= self._retry_ms.get(receiver, 0)

    def send(self, receiver: int, request: Request) -> Outbound:
        self._last_number += 1
        self._in_flight[receiver] = self._last_number
        self._retry_ms.pop(receiver, None)
        return Outbound(self._last_number, receiver, request)

    def take(self, number: int, receiver: int) -> bool:
        """Removes a request that has ended. False if it is no longer outstanding."""
        if self._in_flight.get(receiver) != number:
            return False
        del self._in_flight[receiver]
        return True

    def pause(self, receiver: int, now_ms: int) -> None:
        self._retry_ms[receiver] = now_ms + self._retry_backoff_ms
