"""A flag that a signal handler may set.

`threading.Event` is not safe for that: the handler runs in the main thread, which may hold the lock of the event at
that moment, and would then wait for itself for ever.
"""

import time

_POLL_S = 0.02


class SignalFlag:
    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Returns whether it was set within that time."""
        deadline_s = time.monotonic() + timeout_s
        while not self._is_set and (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _POLL_S))
        return self._is_set
