"""Measures the turns of the event loop, because a long turn delays every client.

A timer fires every few milliseconds; its delay is the time for which the loop was held. While the timer is overdue, a
thread records the stack of the loop, so that the log names the code that holds it.
"""

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

logger = logging.getLogger("ottla.loop")

# A tick costs about 100 us of processor time, so an idle loop has fewer of them.
_IDLE_TICK_S = 0.05
_BUSY_TICK_S = 0.01
_BUSY_FROM_S = 0.002  # the loop is busy if a tick is later than this
_FRAMES_SHOWN = 4
_PACKAGE = "ottla."
_SHELL = ("ottla.broker.run", "ottla.env.loop_watch", "ottla.cli")  # at the bottom of every stack


class LoopWatch:
    """Must be created on the running event loop. `longest_turn_ms` counts from the start or the last `reset`."""

    def __init__(self, warn_ms: int) -> None:
        self.longest_turn_ms = 0.0
        self._warn_s = warn_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._due_s = 0.0  # by time.monotonic, which both threads read
        self._timer: asyncio.TimerHandle | None = None
        self._stack: str | None = None
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

    def usage(self) -> tuple[float, float]:
        """The time, and the processor time of the event loop, in seconds. Must be called on the event loop."""
        return time.monotonic(), time.thread_time()

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
        stack, self._stack = self._stack, None
        if 0 < self._warn_s <= held_s:
            logger.warning("the event loop was held for %d ms by %s", held_s * 1000, stack or "unknown code")

    def _observe(self) -> None:
        """Runs in a thread. Records one stack per turn, when the turn has taken half of the time for a warning."""
        interval_s = self._warn_s / 2
        while not self._is_stopped.wait(interval_s):
            due_s = self._due_s
            if self._stack is None and time.monotonic() - due_s > interval_s:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None and self._due_s == due_s:
                    self._stack = _describe(frame)


def _describe(frame: FrameType | None) -> str:
    """The innermost functions of this package, with the caller last."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES_SHOWN:
        module = frame.f_globals.get("__name__", "?")
        if module.startswith(_PACKAGE) and not module.startswith(_SHELL):
            names.append(f"{module.removeprefix(_PACKAGE)}:{frame.f_code.co_qualname} line {frame.f_lineno}")
        frame = frame.f_back
    return ", called by ".join(names)
