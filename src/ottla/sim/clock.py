"""The clock of one simulated host. Both of its times follow the virtual time of the event loop."""

from collections.abc import Callable

_START_MS = 1_700_000_000_000


class SimClock:
    """Faults change the wall time only: the monotonic time of a real host does not jump either."""

    def __init__(self, time_s: Callable[[], float], start_ms: int = _START_MS) -> None:
        self._time_s = time_s
        self._start_ms = start_ms
        # The wall time was `_base_ms` at `_since_s`, and has run `_rate` times as fast as it should since then.
        self._base_ms = start_ms
        self._since_s = 0.0
        self._rate = 1.0

    def now_ms(self) -> int:
        return self._base_ms + int((self._time_s() - self._since_s) * 1000 * self._rate)

    def monotonic_ms(self) -> int:
        return int(self._time_s() * 1000)

    def monotonic_ns(self) -> int:
        return int(self._time_s() * 1_000_000_000)

    # For tests

    def jump(self, ms: int) -> None:
        """Moves the wall time forward, or back if `ms` is negative."""
        self._base_ms += ms

    def drift(self, rate: float) -> None:
        """From now on the wall time runs `rate` times as fast as the virtual time."""
        self._base_ms, self._since_s, self._rate = self.now_ms(), self._time_s(), rate

    def correct(self) -> None:
        """Ends skew and drift, as a step of NTP does."""
        self._base_ms, self._since_s, self._rate = self._start_ms, 0.0, 1.0
