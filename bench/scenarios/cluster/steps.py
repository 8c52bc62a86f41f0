"""The steps of a scenario that share a cluster: one that fails does not lose the results of the others."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.scenario import PartlyFailedError


@dataclass
class Steps:
    measured: dict[str, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def take(self, name: str, step: Callable[[], dict[str, float]]) -> None:
        """Goes on if the step fails."""
        try:
            self.measured |= step()
        except Exception as error:
            self.reasons.append(f"{name}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def steps() -> Iterator[Steps]:
    """Raises PartlyFailedError at the end if a step failed, or something between the steps, which ends them."""
    taken = Steps()
    try:
        yield taken
    except Exception as error:
        taken.reasons.append(f"{type(error).__name__}: {error}")
    if taken.reasons:
        raise PartlyFailedError(taken.measured, taken.reasons)
