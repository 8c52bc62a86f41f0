"""A pipeline with an archive alone, as a user starts it on topics that are not archived yet, with default settings."""

import tempfile
from pathlib import Path

from tests.interop.brokers import RunningBroker

from bench.pipeline_client import run_once
from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side
from ottla.pipeline.archive.store import Archive

PARTITIONS = 8
VALUE_BYTES = 100
CLIENT_RECORDS_MAX = 4_000_000
START_LIMIT_S = 60.0
SUSTAINED_LEAST = 150_000.0

PIPELINE = """\
name = "backlog"

[cluster]
bootstrap = "{bootstrap}"

[sinks.archive]
kind = "archive"
topics = ["{topic}"]
path = "archive"
"""


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    small, large = sizes.of(3_000_000, 300_000), sizes.of(20_000_000, 2_000_000)
    with side.fresh() as broker:
        _, from_start_s = archived(side, broker, small)
        ready_s, all_s = archived(side, broker, large)
    return {"from start": from_start_s, "sustained": large / (all_s - ready_s)}


def archived(side: Side, broker: RunningBroker, records: int) -> tuple[float, float]:
    """Seconds from the start of the command until the stage runs, and until all is archived and the command ends."""
    with (
        side.topic(broker, PARTITIONS) as topic,
        tempfile.TemporaryDirectory(dir=side.scratch) as scratch,
    ):
        produce(side, broker, topic, records)
        folder = Path(scratch)
        (folder / "pipeline.toml").write_text(PIPELINE.format(bootstrap=broker.bootstrap, topic=topic))
        seconds = run_once(folder)
        found = sum(file.records for file in Archive.at(str(folder / "archive")).load().files.values())
    if found != records:
        raise RuntimeError(f"{found} records were archived, not {records}")
    return seconds


def produce(side: Side, broker: RunningBroker, topic: str, records: int) -> None:
    """In parts that fit into the client's queue."""
    spec = {"value_bytes": VALUE_BYTES, "partitions": PARTITIONS}
    for first in range(0, records, CLIENT_RECORDS_MAX):
        count = min(CLIENT_RECORDS_MAX, records - first)
        side.client("produce", broker, topic, records=count, expected_end=first + count, **spec)


SCENARIOS = (
    Scenario(
        "archive-backlog",
        f"`ottla pipeline run --once` with an archive alone and default settings, {PARTITIONS} partitions of "
        f"{VALUE_BYTES}-byte records: 3 million (quick: 300,000) from the start of the command until it has ended; "
        "and 20 million (quick: 2 million) from the start of the stage until the command has ended",
        (
            Metric("from start", "s", higher_is_better=False, limit=START_LIMIT_S),
            Metric("sustained", "records/s", least=SUSTAINED_LEAST),
        ),
        run,
        rounds_max=3,
        sides=("ottla",),
    ),
)
