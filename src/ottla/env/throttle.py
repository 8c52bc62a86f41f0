"""`log.cleaner.io.max.bytes.per.second`: what is read and written counts, and more than that waits.

One limit for all worker processes: a file that they share has the limit, and the time until which it is used up.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

# Waits shorter than this are saved up: many of them would cost more than they throttle.
_SHORTEST_WAIT_S = 0.01
# How long a change of the limit may go unnoticed.
_LOOK_S = 0.2
_STATE = Struct(
    "=dd"
)  # bytes a second; when all that was counted so far is allowed, by the system's monotonic clock


class SharedThrottle:
    """Survives pickling into a child process that inherits `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "SharedThrottle":
        descriptor, path = tempfile.mkstemp(prefix="ottla-throttle-")
        os.unlink(path)  # it lives as long as a process has it open
        throttle = cls(descriptor)
        throttle.set_limit(float("inf"))
        return throttle

    def set_limit(self, bytes_per_second: float) -> None:
        """Holds at once, for who waits as well. 0 or less: nothing goes on."""
        with self._locked():
            if self._read()[0] != bytes_per_second:
                self._write(bytes_per_second, time.monotonic())

    def __call__(self, size: int) -> None:
        """Counts `size` bytes, and waits until they are allowed."""
        limit, allowed_s = self._take(size)
        while (wait_s := allowed_s - time.monotonic()) >= _SHORTEST_WAIT_S:
            time.sleep(min(wait_s, _LOOK_S))
            if self._read()[0] != limit:
                return

    def close(self) -> None:
        os.close(self.descriptor)

    def _take(self, size: int) -> tuple[float, float]:
        """(the limit, when the bytes are allowed)"""
        with self._locked():
            limit, allowed_s = self._read()
            if limit <= 0:
                return limit, float("inf")
            allowed_s = max(allowed_s, time.monotonic()) + size / limit
            self._write(limit, allowed_s)
            return limit, allowed_s

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock of the process, not of the descriptor: that one is inherited.
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def _read(self) -> tuple[float, float]:
        data = os.pread(self.descriptor, _STATE.size, 0)
        limit, allowed_s = _STATE.unpack(data) if data else (float("nan"), 0.0)
        return limit, allowed_s

    def _write(self, limit: float, allowed_s: float) -> None:
        os.pwrite(self.descriptor, _STATE.pack(limit, allowed_s), 0)
