"""`max.connection.creation.rate` (KIP-612): how many connections may be accepted, and when the next one may."""


class ConnectionRate:
    """On average `per_second` over a window of `window_s` seconds; so many at once, if there were none before."""

    def __init__(self, per_second: int, window_s: int, now_ms: int) -> None:
        self.per_second = per_second
        self.window_s = window_s
        self._allowed = float(per_second * window_s)
        self._now_ms = now_ms

    def accepted(self, now_ms: int) -> None:
        self._pass_time(now_ms)
        self._allowed -= 1

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until the next may be accepted: 0 now, None never."""
        self._pass_time(now_ms)
        if self._allowed >= 1:
            return 0
        if self.per_second == 0:
            return None
        return max(1, round((1 - self._allowed) * 1000 / self.per_second))

    def _pass_time(self, now_ms: int) -> None:
        passed_ms = max(now_ms - self._now_ms, 0)
        self._now_ms = now_ms
        self._allowed = min(
            self._allowed + passed_ms * self.per_second / 1000, float(self.per_second * self.window_s)
        )
