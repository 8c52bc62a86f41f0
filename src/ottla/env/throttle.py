"""`log.cleaner.io.max.bytes.per.second`: what is read and written counts, and more than that waits."""

import time

# Waits shorter than this are saved up: many of them would cost more than they throttle.
_SHORTEST_WAIT_S = 0.01


class Throttle:
    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._ahead_s = 0.0  # by how much what was done is more than the time since allowed
        self._last_s: float | None = None

    def __call__(self, size: int) -> None:
        now_s = time.monotonic()
        if self._last_s is not None:
            self._ahead_s = max(self._ahead_s - (now_s - self._last_s), 0.0)
        self._last_s = now_s
        self._ahead_s += size / self._bytes_per_second
        if self._ahead_s >= _SHORTEST_WAIT_S:
            time.sleep(self._ahead_s)
