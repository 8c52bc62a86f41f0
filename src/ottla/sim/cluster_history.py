"""What clients of a cluster saw of each partition. As `History`, for logs whose leaders change.

A new leader's high watermark may be behind that of the last one, so clients may see it go back. The records before it
never change.
"""

from ottla.sim.history import PartitionHistory, Value, Violation


class ReplicatedHistory(PartitionHistory):
    """The history of one partition, written by idempotent producers."""

    def see_high_watermark(self, high_watermark: int) -> None:
        self.high_watermark = max(self.high_watermark, high_watermark)


class PlainHistory(ReplicatedHistory):
    """The history of a partition whose producers retry without idempotence: a record may be there more than once."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, int] = {}  # the last acknowledged offset by producer

    def acknowledge(self, value: Value, offset: int) -> None:
        super().acknowledge(value, offset)
        last = self._last.get(value.producer, -1)
        if offset <= last:
            raise Violation(
                f"non-monotonic send: {value} was acknowledged at offset {offset}, an earlier record at {last}"
            )
        self._last[value.producer] = offset

    def _check_order(self, log: list[tuple[int, Value]]) -> None:
        """A producer sends its next record when it knows that the last one is in the log."""
        next_numbers: dict[str, int] = {}
        for offset, value in log:
            expected = next_numbers.get(value.producer, 0)
            if value.number > expected:
                raise Violation(
                    f"offset {offset} holds number {value.number} of {value.producer} before {expected}"
                )
            if value.number == expected:
                next_numbers[value.producer] = expected + 1
            if value not in self.attempted:
                raise Violation(f"offset {offset} holds {value}, which no producer sent")
