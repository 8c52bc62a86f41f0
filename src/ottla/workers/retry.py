"""How often a handler is given the same record, and how long it rests in between."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all; the rest after the first failure is `backoff_s`, doubled each time up to `backoff_max_s`."""

    attempts: int = 3
    backoff_s: float = 0.2
    backoff_max_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts={self.attempts}: a record is given to the handler at least once")
        if self.backoff_s < 0 or self.backoff_max_s < self.backoff_s:
            raise ValueError(
                f"backoff_s={self.backoff_s}, backoff_max_s={self.backoff_max_s}: "
                f"neither is negative, and the second is not below the first"
            )

    def delay_s(self, attempts: int) -> float | None:
        """How long to wait after the given number of failed attempts; None: it was the last."""
        if attempts >= self.attempts:
            return None
        # The exponent is bounded so that the thousandth attempt does not overflow a float.
        return min(self.backoff_s * 2.0 ** min(attempts - 1, 60), self.backoff_max_s)

    def total_s(self) -> float:
        """All the rests of one record together."""
        return sum(self.delay_s(attempts) or 0.0 for attempts in range(1, self.attempts))
