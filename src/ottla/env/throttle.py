"""The throttle for `log.cleaner.io.max.bytes.per.second`, which counts the bytes that compaction reads and writes.

All cleaner processes share one limit. A file that they all have open holds the limit and the time until which it is
used up.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

# Shorter waits are added up: many short sleeps would cost more than they throttle.
_SHORTEST_WAIT_S = 0.01
# A waiting process notices a changed limit within this time.
_POLL_S = 0.2
# Bytes per second; the time, by the system's monotonic clock, from which all bytes counted so far are allowed.
_STATE = Struct("=dd")


class SharedThrottle:
    """Can be pickled to a child process that inherits `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "SharedThrottle":
        descriptor, path = tempfile.mkstemp(prefix="ottla-throttle-")
        os.unlink(path)  # the file exists as long as a process has it open
        throttle = cls(descriptor)
        throttle.set_limit(float("inf"))
        return throttle

    def set_limit(self, bytes_per_second: float) -> None:
        """Takes effect at once, also for processes that wait. 0 or less stops all of them."""
        with self._locked():
            if self._read()[0] != bytes_per_second:
                self._write(bytes_per_second, time.monotonic())

    def __call__(self, size: int) -> None:
        """Counts `size` bytes and waits until they are allowed."""
        limit, allowed_s = self._count(size)
        while (wait_s := allowed_s - time.monotonic()) >= _SHORTEST_WAIT_S:
            time.sleep(min(wait_s, _POLL_S))
            if self._read()[0] != limit:
                return

    def close(self) -> None:
        os.close(self.descriptor)

    def _count(self, size: int) -> tuple[float, float]:
        """Returns the limit and the time from which the bytes are allowed."""
        with self._locked():
            limit, allowed_s = self._read()
            if limit <= 0:
                return limit, float("inf")
            allowed_s = max(allowed_s, time.monotonic()) + size / limit
            self._write(limit, allowed_s)
            return limit, allowed_s

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # lockf locks for the process. A flock would belong to the descriptor, which the children share.
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
