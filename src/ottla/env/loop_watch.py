"""Watches the turns of the event loop: one that takes long holds up every client.

The loop sets a timer every few milliseconds; how late it fires is how long the loop was held. A thread looks on from
outside: while the timer is overdue it takes the loop's stack, so that the log names the code that holds it.
"""

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

logger = logging.getLogger("ottla.loop")

# A tick costs some 100 us of the processor: often on a busy loop, seldom on an idle one.
_IDLE_TICK_S = 0.05
_BUSY_TICK_S = 0.01
_BUSY_FROM_S = 0.002
_FRAMES_SHOWN = 4
_PACKAGE = "ottla."
_SHELL = ("ottla.broker.run", "ottla.env.loop_watch", "ottla.cli")  # at the bottom of every stack


class LoopWatch:
    """To be started on the running event loop. `longest_turn_ms` is since the start or the last `reset`."""

    def __init__(self, warn_ms: int) -> None:
        self.longest_turn_ms = 0.0
        self._warn_s = warn_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._due_s = 0.0  # by time.monotonic, which both threads read
        self._timer: asyncio.TimerHandle | None = None
        self._seen: str | None = None
        self._is_stopped = threading.Event()
        self._observer = threading.Thread(target=self._observe, name="ottla-loop-watch", daemon=True)

    def start(self) -> None:
        self._schedule(_IDLE_TICK_S)
        if self._warn_s > 0:
            self._observer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_stopped.set()
        if self._observer.is_alive():
            self._observer.join()

    def reset(self) -> None:
        self.longest_turn_ms = 0.0

    def _schedule(self, delay_s: float) -> None:
        self._due_s = time.monotonic() + delay_s
        self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        held_s = time.monotonic() - self._due_s
        self._schedule(_BUSY_TICK_S if held_s > _BUSY_FROM_S else _IDLE_TICK_S)
        if held_s * 1000 > self.longest_turn_ms:
            self.longest_turn_ms = held_s * 1000
        seen, self._seen = self._seen, None
        if 0 < self._warn_s <= held_s:
            logger.warning("the event loop was held for %d ms by %s", held_s * 1000, seen or "unknown code")

    def _observe(self) -> None:
        """In a thread of its own. One look per turn: when half of the time is over that is worth a warning."""
        patience_s = self._warn_s / 2
        while not self._is_stopped.wait(patience_s):
            due_s = self._due_s
            if self._seen is None and time.monotonic() - due_s > patience_s:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None and self._due_s == due_s:
                    self._seen = _describe(frame)


def _describe(frame: FrameType | None) -> str:
    """The innermost functions of this package, the caller last."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES_SHOWN:
        module = frame.f_globals.get("__name__", "?")
        if module.startswith(_PACKAGE) and not module.startswith(_SHELL):
            names.append(f"{module.removeprefix(_PACKAGE)}:{frame.f_code.co_qualname} line {frame.f_lineno}")
        frame = frame.f_back
    return ", called by ".join(names)
