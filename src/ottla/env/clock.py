"""Wall-clock time and monotonic time. Timers belong to the event loop, whose time is virtual in a simulation."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as in record timestamps. It may jump, also back."""
        ...

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, in nanoseconds, for short durations."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some time in the past, for durations and timeouts. It never goes back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
