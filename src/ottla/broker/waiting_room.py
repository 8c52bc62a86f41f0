"""The shell of the purgatory: one timer of the event loop for every delayed operation of a broker."""

import asyncio
from collections.abc import Hashable, Iterable

from ottla.core.purgatory import Operation, Purgatory


class WaitingRoom:
    """To be made on a running event loop, whose time it goes by: the clock on the wall may be set back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._purgatory = Purgatory(self._now_ms())
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._purgatory)

    def wait(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Lets `operation` wait until a check of one of `keys` completes it, or the time is over."""
        now_ms = self._now_ms()
        self._purgatory.watch(operation, keys, now_ms + timeout_ms)
        self._arm(now_ms)

    def check(self, key: Hashable) -> None:
        """Something changed under `key`."""
        if len(self._purgatory):
            self._purgatory.check(key, self._now_ms())

    def cancel(self, operation: Operation) -> None:
        self._purgatory.cancel(operation)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _arm(self, now_ms: int) -> None:
        """Most waits end before their deadline: a timer that fires too early costs less than re-arming for each."""
        deadline_ms = self._purgatory.timers.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(max(0, deadline_ms - now_ms) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        self._purgatory.expire(now_ms)
        self._arm(now_ms)
