"""The dashboard and the alert rules read metrics that exist. tests/interop/test_prometheus.py loads them."""

import json
import re
from pathlib import Path

from ottla.broker.metrics.catalog import FAMILIES

ROOT = Path(__file__).parents[4]
ALERTS = (ROOT / "monitoring" / "alerts.yml").read_text()
DASHBOARD = (ROOT / "monitoring" / "grafana-dashboard.json").read_text()
# Of summaries and histograms.
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def test_every_metric_that_they_read_exists() -> None:
    names = {family.name for family in FAMILIES}
    expressions = re.findall(r"expr: (.*)", ALERTS)
    expressions += [t["expr"] for panel in json.loads(DASHBOARD)["panels"] for t in panel.get("targets", ())]
    expressions += [each["query"]["query"] for each in json.loads(DASHBOARD)["templating"]["list"][1:]]
    read = {name for text in expressions for name in re.findall(r"\b(?:kafka|ottla|process)_\w+", text)}
    assert len(read) > 40
    assert {name for name in read if not {name, SUFFIX.sub("", name)} & names} == set()


def test_every_alert_is_documented_and_says_what_to_do() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    assert re.findall(r"^- `(Ottla\w+)`: ", page, re.MULTILINE) == alerts
    assert (
        len(re.findall(r"summary: \S", ALERTS)) == len(re.findall(r"description: \S", ALERTS)) == len(alerts)
    )
