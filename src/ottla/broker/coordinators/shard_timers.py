"""The timers of a shard, on the broker's timing wheel.

Nearly every timer is postponed or cancelled before it fires: a session timeout by the next heartbeat, a transaction
timeout by the end of the transaction. So a cancelled timer stays on the wheel, and a postponed one stays where it is:
when the wheel reaches it, it is dropped, or put back for the rest of its time. Only a timer that is brought forward is
moved at once.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ottla.broker.delayed_operations import DelayedOperations
from ottla.core.coordination import Command, StartTimer, TimerChange
from ottla.core.purgatory import Operation

_RETRY_MS = 500


class ShardTimers:
    def __init__(
        self,
        delayed_operations: DelayedOperations,
        fire: Callable[[Command[Any]], None],
        on_error: Callable[[Exception], None],
        may_fire: Callable[[], bool] = lambda: True,
    ) -> None:
        """While `may_fire` says no, timers that are due wait."""
        self._loop = asyncio.get_running_loop()
        self._delayed_operations = delayed_operations
        self._fire = fire
        self._may_fire = may_fire
        self.on_error = on_error
        self._by_key: dict[Hashable, ShardTimer] = {}

    def update(self, timings: Iterable[TimerChange]) -> None:
        """Starts and cancels timers as a decision says."""
        for timing in timings:
            timer = self._by_key.get(timing.key)
            if not isinstance(timing, StartTimer):
                if timer is not None:
                    timer.command = None
                continue
            due_ms = int(self._loop.time() * 1000) + timing.delay_ms
            if timer is not None and timer.wheel_ms > due_ms:
                self._delayed_operations.cancel(timer)
                timer = None
            if timer is None:
                self._by_key[timing.key] = timer = ShardTimer(self, timing.key, due_ms)
                self._delayed_operations.watch(timer, (), timing.delay_ms)
            timer.command, timer.due_ms = timing.command, due_ms

    def clear(self) -> None:
        for timer in self._by_key.values():
            self._delayed_operations.cancel(timer)
        self._by_key.clear()

    def reached(self, timer: "ShardTimer", now_ms: int) -> None:
        """The wheel has reached the timer: fires it if it is due, or puts it back."""
        if timer.command is not None and timer.due_ms <= now_ms and not self._may_fire():
            timer.due_ms = now_ms + _RETRY_MS
        if timer.command is not None and timer.due_ms > now_ms:
            timer.wheel_ms = timer.due_ms
            self._delayed_operations.watch(timer, (), timer.due_ms - now_ms)
            return
        del self._by_key[timer.key]
        if timer.command is not None:
            self._fire(timer.command)


class ShardTimer(Operation):
    """`command` is None if the timer was cancelled. `wheel_ms`, its time on the wheel, is never after `due_ms`."""

    def __init__(self, timers: ShardTimers, key: Hashable, wheel_ms: int) -> None:
        super().__init__()
        self.key = key
        self.wheel_ms = self.due_ms = wheel_ms
        self.command: Command[Any] | None = None
        self._timers = timers

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self._timers.reached(self, now_ms)

    def on_error(self, error: Exception) -> None:
        self._timers.on_error(error)
