"""Quantiles of the last five minutes."""

import pytest

from ottla.metrics import Histogram, RecentQuantiles
from ottla.metrics.quantiles import WINDOW_NS


def test_quantiles_are_exact_within_a_bucket() -> None:
    histogram = Histogram(tuple(range(10, 1010, 10)))
    for value in range(1, 1001):
        histogram.observe(value)
    found = RecentQuantiles().read(histogram, (0.5, 0.99), now_ns=0)
    assert found == pytest.approx([500, 990], abs=10)


def test_old_observations_are_forgotten() -> None:
    histogram, recent = Histogram((10, 100, 1000)), RecentQuantiles()
    histogram.observe(900)
    assert recent.read(histogram, (0.5,), 0) == pytest.approx([550])
    assert recent.read(histogram, (0.5,), WINDOW_NS // 2) == pytest.approx([550])
    histogram.observe(5)
    assert recent.read(histogram, (0.5,), 3 * WINDOW_NS // 2) == pytest.approx([5])
    assert recent.read(histogram, (0.5,), 3 * WINDOW_NS) is None


def test_no_observation_has_no_quantile() -> None:
    assert RecentQuantiles().read(Histogram((1,)), (0.5,), 0) is None


def test_an_observation_beyond_the_last_bound_is_that_bound() -> None:
    histogram = Histogram((10, 20))
    histogram.observe(50)
    assert RecentQuantiles().read(histogram, (0.5,), 0) == [20]
