"""The outstanding requests of a node: at most one to each receiver, with a pause after a failure."""

from collections.abc import Iterable, Sequence

from ottla.core.raft.messages import Outbound, Request
from ottla.core.raft.roles import NEVER_MS

# Short, because the first election of a cluster waits until a majority of its nodes listens.
UNREACHABLE_BACKOFF_MS_MAX = 100
# There may be many observers, and each of them writes its state when it follows a leader that it then does not reach.
OBSERVER_BACKOFF_MS_MAX = 1_000


class Outbox:
    def __init__(self, retry_backoff_ms: int, backoff_ms_max: int = UNREACHABLE_BACKOFF_MS_MAX) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._backoff_ms_max = max(backoff_ms_max, retry_backoff_ms)
        self._last_number = 0
        self._in_flight: dict[int, int] = {}  # receiver: number
        self._retry_ms: dict[int, int] = {}
        self._failures: dict[int, int] = {}  # requests in a row without a response
        self._chosen = 0  # how often `choose` has chosen a receiver

    def clear(self) -> None:
        """Forgets all requests. Responses that still arrive are ignored."""
        self._in_flight.clear()
        self._retry_ms.clear()

    @property
    def awaits_response(self) -> bool:
        """Whether a request is outstanding, to a receiver that did not leave the one before without a response."""
        return any(receiver not in self._failures for receiver in self._in_flight)

    def choose(self, receivers: Sequence[int], now_ms: int) -> int | None:
        """Another receiver each time, for one request after the other: None while a response is awaited."""
        free = [receiver for receiver in receivers if self.may_send_to(receiver, now_ms)]
        if not free or self.awaits_response:
            return None
        self._chosen += 1
        return free[self._chosen % len(free)]

    def end_pauses(self, now_ms: int) -> None:
        """Forgets the pauses that are over. The requests that they held back are sent now, if there are any."""
        self._retry_ms = {to: retry_ms for to, retry_ms in self._retry_ms.items() if retry_ms > now_ms}

    @property
    def next_retry_ms(self) -> int:
        """When the next pause ends. It may be in the past: a pause counts until `end_pauses` has ended it."""
        return min(self._retry_ms.values(), default=NEVER_MS)

    def may_send_to(self, receiver: int, now_ms: int) -> bool:
        return receiver not in self._in_flight and not self.is_paused(receiver, now_ms)

    def is_paused(self, receiver: int, now_ms: int) -> bool:
        return now_ms < self._retry_ms.get(receiver, 0)

    def send(self, receiver: int, request: Request) -> Outbound:
        self._last_number += 1
        self._in_flight[receiver] = self._last_number
        self._retry_ms.pop(receiver, None)
        return Outbound(self._last_number, receiver, request)

    def send_all(self, requests: Iterable[tuple[int, Request]], now_ms: int) -> list[Outbound]:
        """Sends the requests to receivers without a pause or a request before."""
        return [self.send(to, request) for to, request in requests if self.may_send_to(to, now_ms)]

    def take(self, number: int, receiver: int) -> bool:
        """Removes a request that has ended. False if it is no longer outstanding."""
        if self._in_flight.get(receiver) != number:
            return False
        del self._in_flight[receiver]
        return True

    def pause(self, receiver: int, now_ms: int) -> None:
        self._retry_ms[receiver] = now_ms + self._retry_backoff_ms

    def pause_unreachable(self, receiver: int, now_ms: int) -> None:
        """Each pause is twice as long as the one before, until the receiver responds."""
        failures = self._failures[receiver] = self.failures(receiver) + 1
        backoff_ms = self._retry_backoff_ms << min(failures - 1, 16)
        self._retry_ms[receiver] = now_ms + min(backoff_ms, self._backoff_ms_max)

    def give_up(self, receiver: int, now_ms: int) -> None:
        """Forgets the request to a receiver that has not responded for too long, which counts as a failure."""
        self._in_flight.pop(receiver, None)
        self.pause_unreachable(receiver, now_ms)

    def failures(self, receiver: int) -> int:
        """How many requests in a row the receiver has left without a response."""
        return self._failures.get(receiver, 0)

    def reached(self, receiver: int) -> None:
        self._failures.pop(receiver, None)
