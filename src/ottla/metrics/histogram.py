"""A histogram with fixed buckets."""

from bisect import bisect_left
from collections.abc import Container, Sequence

from ottla.metrics.text import line


class Histogram:
    """Counts integers, such as nanoseconds: adding floats would lose the small ones in a large sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds` are the upper bounds of the buckets, in ascending order. A last bucket has no bound."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0

    def observe(self, value: int, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def add(self, other: "Histogram") -> None:
        """Adds the observations of a histogram with the same bounds."""
        self.counts = [one + another for one, another in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    @property
    def count(self) -> int:
        return sum(self.counts)

    def lines(self, name: str, labels_text: str, scale: int, shown: Container[int] | None = None) -> str:
        """The samples, of all bounds or of those in `shown`. `labels_text` has at least one label."""
        count, written = 0, []
        opened = labels_text.removesuffix("}")
        for bound, counted in zip((*self.bounds, None), self.counts, strict=True):
            count += counted
            if bound is not None and shown is not None and bound not in shown:
                continue
            limit = "+Inf" if bound is None else str(bound / scale)
            written.append(line(f"{name}_bucket", f'{opened},le="{limit}"}}', count))
        written.append(line(f"{name}_sum", labels_text, self.sum / scale))
        written.append(line(f"{name}_count", labels_text, count))
        return "".join(written)
