"""Fails a simulation in which the broker blocks its event loop with the disk.

Virtual time stands still during a turn of the loop, so a slow call cannot be measured. Instead, calls that may be slow
on a real disk are counted: no sync at all, and only a few bytes of reads in a turn, unless a thread makes the call.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ottla.sim.loop import NODE

_OUTSIDE: ContextVar[bool] = ContextVar("ottla_sim_outside_loop", default=False)

SYNCS = frozenset({"sync", "sync_dir"})
# What a read of the page cache returns in a millisecond. The end of a move copies 1 MB that was just written.
READ_BYTES_MAX = 1280 * 1024
_FRAMES = 6


class LoopWatch:
    """`turn` returns the number of the current turn of the loop; `report` gets a message for every blocking call."""

    def __init__(self, turn: Callable[[], int], report: Callable[[str], None]) -> None:
        self.is_serving = False  # at start and stop the loop may block
        self._turn = turn
        self._report = report
        self._last_turn = -1
        self._bytes_read = 0

    def began(self, operation: str, path: str) -> None:
        if operation in SYNCS and self._is_watched():
            self._report(f"{operation} of {path} on the event loop: {_callers()}")

    def read(self, path: str, size: int) -> None:
        if not self._is_watched():
            return
        turn = self._turn()
        if turn != self._last_turn:
            self._last_turn, self._bytes_read = turn, 0
        is_reported = self._bytes_read > READ_BYTES_MAX
        self._bytes_read += size
        if self._bytes_read > READ_BYTES_MAX and not is_reported:
            self._report(
                f"{self._bytes_read} bytes read in one turn of the event loop, at last of {path}: {_callers()}"
            )

    def _is_watched(self) -> bool:
        return self.is_serving and NODE.get() != "" and not _OUTSIDE.get()


@contextmanager
def outside_loop() -> Iterator[None]:
    """For work that a real environment does in a thread or in another process."""
    token = _OUTSIDE.set(True)
    try:
        yield
    finally:
        _OUTSIDE.reset(token)


def _callers() -> str:
    frames = [frame for frame in traceback.extract_stack() if "/ottla/sim/" not in frame.filename]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-_FRAMES:]))
