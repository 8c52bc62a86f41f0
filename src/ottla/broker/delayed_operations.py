"""The shell of the purgatory: runs delayed operations on the event loop, with one timer for all of them."""

import asyncio
import logging
from collections.abc import Hashable, Iterable

from ottla.core.purgatory import Operation, Purgatory

logger = logging.getLogger("ottla.requests")


class DelayedOperations:
    """Must be created on a running event loop. It uses the loop's monotonic time: the wall clock may be set back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._purgatory = Purgatory(self._now_ms(), self._operation_failed)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._changed: dict[Hashable, None] = {}  # an ordered set

    def __len__(self) -> int:
        return len(self._purgatory)

    def waiting(self) -> list[Operation]:
        """The operations that wait, in no order."""
        return self._purgatory.operations()

    def next_deadline_in_ms(self) -> int | None:
        """When the timing wheel has work next; None if nothing waits."""
        deadline_ms = self._purgatory.timers.next_deadline_ms()
        return None if deadline_ms is None else max(0, deadline_ms - self._now_ms())

    def watch(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Delays `operation` until a check of one of `keys` completes it, or until it expires."""
        now_ms = self._now_ms()
        self._purgatory.watch(operation, keys, now_ms + timeout_ms)
        self._arm(now_ms)

    def notify(self, key: Hashable) -> None:
        """Something changed under `key`: operations that watch it are tried in the next turn of the event loop.

        A request that changes many keys calls `check_changed` when it is done. An operation that watches several of
        them then completes once, with all changes, and without waiting for the next turn.
        """
        if self._purgatory.is_watched(key):
            if not self._changed:
                self._loop.call_soon(self.check_changed)
            self._changed[key] = None

    def check_changed(self) -> None:
        """Tries the operations that watch a key for which `notify` was called."""
        while self._changed:
            changed, self._changed = self._changed, {}
            self._purgatory.check(changed, self._now_ms())

    def cancel(self, operation: Operation) -> None:
        self._purgatory.cancel(operation)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _arm(self, now_ms: int) -> None:
        """Most operations complete before their deadline: a timer that fires too early costs less than one for each."""
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

    def _operation_failed(self, operation: Operation, error: Exception) -> None:
        logger.error("%s failed while it waited", type(operation).__name__, exc_info=error)
        try:
            operation.on_error(error)
        except Exception:
            logger.exception("the client that waits for %s cannot be released", type(operation).__name__)
