"""How often a handler gets the same record, and how long to wait in between."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all. The first backoff is `backoff_s`; each next one is twice as long, up to `backoff_max_s`."""

    attempts: int = 3
    backoff_s: float = 0.2
    backoff_max_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(
                f"attempts={self.attempts}: the handler gets a record at least once: set 1 or more"
            )
        if self.backoff_s < 0 or self.backoff_max_s < self.backoff_s:
            raise ValueError(
                f"backoff_s={self.backoff_s}, backoff_max_s={self.backoff_max_s}: "
                f"neither may be negative, and the second may not be below the first"
            )

    def delay_s(self, attempts: int) -> float | None:
        """How long to wait after so many failed attempts; None after the last."""
        if attempts >= self.attempts:
            return None
        # The exponent is bounded so that the thousandth attempt does not overflow a float.
        return min(self.backoff_s * 2.0 ** min(attempts - 1, 60), self.backoff_max_s)

    def total_s(self) -> float:
        """The sum of all backoffs of one record."""
        return sum(self.delay_s(attempts) or 0.0 for attempts in range(1, self.attempts))
