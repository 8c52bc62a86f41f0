"""What a benchmark's metric must reach: a ratio against Kafka, and bounds of Ottla's own value."""

import pytest
from bench.runner import Series
from bench.scenario import Metric, Scenario
from bench.scenarios.cluster import reassignment


def verdict(metric: Metric, ottla: list[float], kafka: list[float]) -> str:
    scenario = Scenario("any", "", (metric,), lambda side, sizes: {})
    return Series(scenario, metric, {"ottla": ottla, "kafka": kafka}).verdict


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (Metric("load kept", "x"), ""),
        (Metric("load kept", "x", least=0.8), "at least 0.8 x: reached"),
        (Metric("load kept", "x", least=0.9), "at least 0.9 x: not reached"),
        (Metric("pause", "s", limit=0.8), "at most 0.8 s: reached"),
        (Metric("pause", "s", limit=0.7), "at most 0.7 s: not reached"),
        (Metric("load kept", "x", target=1, least=0.8), "1x: reached, at least 0.8 x: reached"),
        (Metric("pause", "s", higher_is_better=False, target=1), "1x: not reached"),
    ],
)
def test_the_verdict_names_each_target(metric: Metric, expected: str) -> None:
    assert verdict(metric, [0.5, 0.8, 0.9], [0.4]) == expected


def test_a_metric_that_could_not_be_measured_reaches_nothing() -> None:
    assert verdict(Metric("load kept", "x", least=0.8), [], [1.0]) == "not measured"


def test_a_reassignment_must_keep_most_of_the_load() -> None:
    (scenario,) = reassignment.SCENARIOS
    (kept,) = [metric for metric in scenario.metrics if metric.name == "load kept"]
    assert kept.least == 0.8
