"""The token bucket behind `max.connection.creation.rate` (KIP-612)."""


class ConnectionRate:
    """`per_second` connections on average over `window_s` seconds. After a pause, all of them may come at once."""

    def __init__(self, per_second: int, window_s: int, now_ms: int) -> None:
        self.per_second = per_second
        self.window_s = window_s
        self._allowed = float(per_second * window_s)
        self._now_ms = now_ms

    def accepted(self, now_ms: int) -> None:
        self._refill(now_ms)
        self._allowed -= 1

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until the next connection may be accepted; None if the rate is 0."""
        self._refill(now_ms)
        if self._allowed >= 1:
            return 0
        if self.per_second == 0:
            return None
        return max(1, round((1 - self._allowed) * 1000 / self.per_second))

    def _refill(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._now_ms, 0)
        self._now_ms = now_ms
        self._allowed = min(
            self._allowed + passed_ms * self.per_second / 1000, float(self.per_second * self.window_s)
        )
