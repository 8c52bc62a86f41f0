"""Quantiles of recent observations, from the counts of a histogram at two times."""

from collections import deque
from collections.abc import Sequence

from ottla.metrics.histogram import Histogram

WINDOW_NS = 300_000_000_000
_STEP_NS = 15_000_000_000


class RecentQuantiles:
    """The observations since a reading that is at least five minutes old, or since the start."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, list[int]]] = deque()

    def read(self, histogram: Histogram, quantiles: Sequence[float], now_ns: int) -> list[float] | None:
        """None if there are no observations. A value is exact within its bucket."""
        readings = self._readings
        while len(readings) > 1 and now_ns - readings[1][0] >= WINDOW_NS:
            readings.popleft()
        if not readings:
            readings.append((now_ns, [0] * len(histogram.counts)))
        before = readings[0][1]
        recent = [count - old for count, old in zip(histogram.counts, before, strict=True)]
        if now_ns - readings[-1][0] >= _STEP_NS:
            readings.append((now_ns, list(histogram.counts)))
        if not any(recent):
            return None
        return [_quantile(histogram.bounds, recent, wanted) for wanted in quantiles]


def _quantile(bounds: Sequence[int], counts: Sequence[int], wanted: float) -> float:
    """Observations are taken as evenly distributed within their bucket, as Prometheus does."""
    rank = wanted * sum(counts)
    below = 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            if index == len(bounds):
                return bounds[-1]
            low = bounds[index - 1] if index else 0
            return low + (bounds[index] - low) * (rank - below) / count
        below += count
    return bounds[-1]
