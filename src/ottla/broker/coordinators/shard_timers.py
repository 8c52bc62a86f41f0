"""The timers of a shard's machine, on the broker's timing wheel.

Nearly every timer is put off or cancelled before its time: a session by the next heartbeat, a transaction by its end.
So one that is cancelled stays on the wheel, and one that is put off is left where it is, unless it would be late there:
when it comes up it is dropped, or goes back for the rest of its time.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ottla.broker.waiting_room import WaitingRoom
from ottla.core.coordination import Command, StartTimer, TimerChange
from ottla.core.purgatory import Operation


class ShardTimers:
    def __init__(
        self,
        waiting_room: WaitingRoom,
        fire: Callable[[Command[Any]], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting_room = waiting_room
        self._fire = fire
        self.on_error = on_error
        self._by_key: dict[Hashable, ShardTimer] = {}

    def keep(self, timings: Iterable[TimerChange]) -> None:
        for timing in timings:
            timer = self._by_key.get(timing.key)
            if not isinstance(timing, StartTimer):
                if timer is not None:
                    timer.command = None
                continue
            due_ms = int(self._loop.time() * 1000) + timing.delay_ms
            if timer is not None and timer.comes_up_ms > due_ms:
                self._waiting_room.cancel(timer)
                timer = None
            if timer is None:
                self._by_key[timing.key] = timer = ShardTimer(self, timing.key, due_ms)
                self._waiting_room.wait(timer, (), timing.delay_ms)
            timer.command, timer.due_ms = timing.command, due_ms

    def clear(self) -> None:
        for timer in self._by_key.values():
            self._waiting_room.cancel(timer)
        self._by_key.clear()

    def came_up(self, timer: "ShardTimer", now_ms: int) -> None:
        if timer.command is not None and timer.due_ms > now_ms:
            timer.comes_up_ms = timer.due_ms
            self._waiting_room.wait(timer, (), timer.due_ms - now_ms)
            return
        del self._by_key[timer.key]
        if timer.command is not None:
            self._fire(timer.command)


class ShardTimer(Operation):
    """`command` is None where it was cancelled. It comes up at `comes_up_ms`, which is never after it is due."""

    def __init__(self, timers: ShardTimers, key: Hashable, comes_up_ms: int) -> None:
        super().__init__()
        self.key = key
        self.comes_up_ms = self.due_ms = comes_up_ms
        self.command: Command[Any] | None = None
        self._timers = timers

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self._timers.came_up(self, now_ms)

    def on_error(self, error: Exception) -> None:
        self._timers.on_error(error)
