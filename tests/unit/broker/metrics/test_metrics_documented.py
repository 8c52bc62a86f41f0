"""docs/metrics.md describes every metric, and no other."""

import re
from pathlib import Path

import pytest

from ottla.broker.metrics.catalog import FAMILIES, SECTIONS, reference
from ottla.metrics.client_series import RESERVED_PREFIXES

PAGE = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_metric_is_documented(section: str) -> None:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    assert reference(section) in text, f"replace the table by:\n{reference(section)}"


def test_every_documented_metric_exists() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [family.name for family in FAMILIES]


def test_clients_cannot_push_a_metric_with_a_name_of_the_broker() -> None:
    assert [family.name for family in FAMILIES if not family.name.startswith(RESERVED_PREFIXES)] == []
