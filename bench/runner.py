"""Runs the rounds: each scenario on both sides, and the side that goes first changes from round to round."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.scenario import Metric, PartlyFailedError, Scenario, Sizes
from bench.sides import Side


@dataclass
class Series:
    """All rounds of one metric on both sides."""

    scenario: Scenario
    metric: Metric
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, side: str) -> float | None:
        """None if no round could be measured."""
        return median(self.values[side]) if self.values.get(side) else None

    def spread(self, side: str) -> str:
        """(maximum - minimum) / median; "-" if there is only one round."""
        values = self.values.get(side, [])
        return f"{(max(values) - min(values)) / (median(values) or 1):.0%}" if len(values) > 1 else "-"

    @property
    def ratio(self) -> float | None:
        """None if only one side is measured."""
        ottla, kafka = self.median("ottla"), self.median("kafka")
        return None if ottla is None or kafka is None else self.metric.ratio(ottla, kafka)

    @property
    def verdict(self) -> str:
        """Whether the target and the bounds, if there are any, are reached."""
        ottla = self.median("ottla")
        if ottla is None:
            return "not measured"
        targets = []
        if self.metric.target is not None:
            targets.append((f"{self.metric.target:g}x", (self.ratio or 0) >= self.metric.target))
        if self.metric.limit is not None:
            limit = f"at most {self.metric.limit:g} {self.metric.unit}"
            targets.append((limit, ottla <= self.metric.limit))
        if self.metric.least is not None:
            least = f"at least {self.metric.least:g} {self.metric.unit}"
            targets.append((least, ottla >= self.metric.least))
        return ", ".join(f"{text}: {'reached' if good else 'not reached'}" for text, good in targets)


def run_scenarios(
    scenarios: Sequence[Scenario],
    sides: Sequence[Side],
    sizes: Sizes,
    rounds: int,
    say: Callable[[str], None],
) -> Iterator[list[Series]]:
    """Yields the series of each scenario when it is done. A scenario that fails has no values for that round."""
    for scenario in scenarios:
        series = {metric.name: Series(scenario, metric) for metric in scenario.metrics}
        for number in range(min(rounds, scenario.rounds_max or rounds)):
            for side in sides if number % 2 == 0 else reversed(sides):
                if side.name not in scenario.sides:
                    continue
                measured = _measure(scenario, side, sizes, say)
                shown = ", ".join(f"{name} {value:,.3g}" for name, value in measured.items())
                say(f"{scenario.name}, round {number + 1}, {side.name}: {shown}")
                for name, value in measured.items():
                    series[name].values[side.name].append(value)
        yield list(series.values())


def _measure(scenario: Scenario, side: Side, sizes: Sizes, say: Callable[[str], None]) -> Mapping[str, float]:
    """Whatever goes wrong in one scenario, the others are worth having."""
    try:
        return scenario.run(side, sizes)
    except PartlyFailedError as failure:
        say(f"{scenario.name}, {side.name}: FAILED in part: {failure}")
        return failure.measured
    except Exception as error:
        say(f"{scenario.name}, {side.name}: FAILED: {type(error).__name__}: {error}")
        return {}
