"""Wall-clock time that follows the virtual time of the event loop."""

from collections.abc import Callable

_START_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, time_s: Callable[[], float], start_ms: int = _START_MS) -> None:
        self._time_s = time_s
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._time_s() * 1000)
