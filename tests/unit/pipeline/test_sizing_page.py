"""The figures of docs/pipeline/sizing.md are those of the results that it names."""

import json
import re
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "pipeline"
PAGE = (FOLDER / "sizing.md").read_text()
# what the results call it, and what the page does
UNITS = {"1/s": "records/s"}


class Row(NamedTuple):
    scenario: str
    metric: str
    figure: str
    results: str


ROWS = [
    Row(*found)
    for found in re.findall(r"^\|.*\| `(.+?)` \| (.+?) \| (.+?) \| \[.*?\]\((.+?)\) \|$", PAGE, re.M)
]


@cache
def figures(results: str) -> dict[tuple[str, str], tuple[float, str]]:
    """The median and the unit, by scenario and metric, of those that were measured."""
    found = json.loads((FOLDER / results).read_text())["results"]
    return {
        (one["scenario"], one["metric"]): (median(one["values"]["ottla"]), one["unit"])
        for one in found
        if "ottla" in one["values"]
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.scenario} {row.metric}")
def test_a_figure_is_that_of_the_results(row: Row) -> None:
    value, unit = figures(row.results)[row.scenario, row.metric]
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    assert row.figure == f"{text} {UNITS.get(unit, unit)}"


def test_every_scenario_that_the_page_speaks_of_is_in_its_table() -> None:
    assert len(ROWS) == len(re.findall(r"^\| ", PAGE, re.M)) - 2
    named = set(re.findall(r"`((?:archive|spark|pipeline)-[\w-]+)`", PAGE))
    assert named == {row.scenario for row in ROWS} - {"pipeline"}
