"""The result of a run: a table on the terminal, and the same as Markdown and JSON in `bench/results/`."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
from tests.interop.kafka_jars import KAFKA_VERSION

from bench.nodes import KAFKA_HEAP
from bench.runner import Series
from ottla import __version__

HEADINGS = ("scenario", "metric", "unit", "Ottla", "Kafka", "ratio", "spread", "target")


def setting(rounds: int, quick: bool) -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "Ottla": __version__,
        "Apache Kafka": f"{KAFKA_VERSION}, heap of 1 GB (a node of a cluster: {KAFKA_HEAP}), "
        "collector settings of its start script, warm",
        "client": f"librdkafka {confluent_kafka.libversion()[0]} (confluent-kafka {version('confluent-kafka')})",
        "Python": platform.python_version(),
        "Java": java.partition("\n")[0],
        "machine": f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}",
        "rounds": f"median of {rounds}; scenarios of growth: 1",
        "sizes": "quick: for a first look, not for numbers to quote" if quick else "full",
    }


def rows(found: Sequence[Series]) -> list[tuple[str, ...]]:
    return [
        (
            series.scenario.name,
            series.metric.name,
            series.metric.unit,
            number(series.median("ottla")),
            *against_kafka(series),
            series.verdict,
        )
        for series in found
    ]


def against_kafka(series: Series) -> tuple[str, str, str]:
    """Kafka's median, the ratio and the spread."""
    if "kafka" not in series.scenario.sides:
        return "-", "-", series.spread("ottla")
    spread = f"{series.spread('ottla')} / {series.spread('kafka')}"
    ratio = "-" if series.ratio is None else f"{series.ratio:.2f}x"
    return number(series.median("kafka")), ratio, spread


def number(value: float | None) -> str:
    if value is None:
        return "failed"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_text(found: Sequence[Series]) -> str:
    table = [HEADINGS, *rows(found)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table
    )


def write(
    target: Path, found: Sequence[Series], settings: Mapping[str, str], client_cores: Mapping[str, float]
) -> None:
    """Writes `target`.md and `target`.json."""
    table = [HEADINGS, tuple("---" for _ in HEADINGS), *rows(found)]
    whats = {series.scenario.name: series.scenario.what for series in found}
    lines = [
        "# Ottla beside Apache Kafka",
        "",
        *(f"- {name}: {value}" for name, value in settings.items()),
        *(
            f"- client CPU against {name}: {cores:.2f} cores on average"
            for name, cores in client_cores.items()
        ),
        "",
        "The ratio says how many times better Ottla is: over 1 is better, in either direction of the metric.",
        "Spread is (most - least) / median over the rounds, Ottla / Kafka.",
        "",
        *("| " + " | ".join(row) + " |" for row in table),
        "",
        *(f"- {name}: {what}" for name, what in whats.items()),
        "",
        f"![ratios]({target.name}.png)",
        "",
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".md").write_text("\n".join(lines))
    data = {
        "settings": settings,
        "client cores": client_cores,
        "results": [
            {
                "scenario": series.scenario.name,
                "metric": series.metric.name,
                "unit": series.metric.unit,
                "values": series.values,
                "ratio": series.ratio,
                "target": series.metric.target,
                "limit": series.metric.limit,
                "least": series.metric.least,
            }
            for series in found
        ],
    }
    target.with_suffix(".json").write_text(json.dumps(data, indent=2) + "\n")
