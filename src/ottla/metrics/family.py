"""The description of a metric."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

_NAME = re.compile(r"[a-z_][a-zA-Z0-9_]*")
_TOTAL = "_total"


class FamilyError(ValueError):
    """A family that cannot be exposed, or two that a client could not tell apart."""


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """The name of a counter ends with `_total`. `meaning` is one sentence, or several."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def base_name(self) -> str:
        """The name in a header of OpenMetrics: of a counter without its suffix."""
        return self.name.removesuffix(_TOTAL) if self.kind is Kind.COUNTER else self.name


def check_families(families: Iterable[Family]) -> None:
    """Raises FamilyError for an invalid family, and for two families with the same name."""
    seen: set[str] = set()
    for family in families:
        if not all(_NAME.fullmatch(name) for name in (family.name, *family.labels)):
            raise FamilyError(f"{family.name} with the labels {family.labels} is not a valid metric")
        if (family.kind is Kind.COUNTER) != family.name.endswith(_TOTAL):
            raise FamilyError(
                f"{family.name} is a {family.kind.value}: only the names of counters end in _total"
            )
        if not family.meaning.endswith("."):
            raise FamilyError(f"the meaning of {family.name} does not end with a full stop")
        if family.base_name in seen:
            raise FamilyError(f"there are two metrics {family.base_name}")
        seen.add(family.base_name)


def reference_table(families: Iterable[Family]) -> str:
    """The table of some metrics, for their documentation."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, meaning, labels in families:
        rows.append(
            f"| `{name}` | {kind.value} | {', '.join(f'`{label}`' for label in labels)} | {meaning} |"
        )
    return "\n".join(rows)
