"""A scenario: metrics with their direction and target, and a function that measures them on one side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.sides import Side


@dataclass(frozen=True)
class Metric:
    """`target` is the ratio to reach against Kafka. `limit` and `least` bound Ottla's own value."""

    name: str
    unit: str
    higher_is_better: bool = True
    target: float | None = None
    limit: float | None = None
    least: float | None = None

    def ratio(self, ottla: float, kafka: float) -> float:
        """How many times better Ottla is: above 1 is better, in either direction."""
        better, worse = (ottla, kafka) if self.higher_is_better else (kafka, ottla)
        return better / worse if worse else float("inf")


class PartlyFailedError(Exception):
    """Some lines of a scenario could not be measured; `measured` has the others."""

    def __init__(self, measured: dict[str, float], reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.measured = measured


@dataclass(frozen=True)
class Sizes:
    """The size of a run; `quick` is for a first look, not for numbers to quote.

    `catch_up_mb` is produced while a node of the cluster is down.
    """

    quick: bool
    catch_up_mb: int = 5_000

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Scenario:
    """`rounds_max` limits the rounds of a scenario that takes minutes; `sides` are the brokers that it measures."""

    name: str
    what: str
    metrics: tuple[Metric, ...]
    run: Callable[[Side, Sizes], dict[str, float]]
    rounds_max: int | None = None
    sides: tuple[str, ...] = ("ottla", "kafka")
