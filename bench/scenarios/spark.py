"""Spark rows a second through `format("ottla")` and through Spark's own Kafka connector, both on Ottla.

The sides are the connectors here: `ottla` is ours, `kafka` is Spark's with its defaults. The broker is Ottla for both.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import CLIENT_TIMEOUT_S, ROOT, Side

PARTITIONS = 4
VALUE_BYTES = 100
WARM_UP = 100_000


def reading(role: str, **spec: object) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        records = sizes.of(2_000_000, 200_000)
        with filled_topics(side, records) as (bootstrap, topic, small):
            warm_up = {"topic": small, "records": WARM_UP}
            asked = {"topic": topic, "records": records, "warm_up": warm_up, **spec}
            return {"rows": records / connector_seconds(side, role, bootstrap, asked)}

    return run


def writing(side: Side, sizes: Sizes) -> dict[str, float]:
    records = sizes.of(2_000_000, 200_000)
    ottla = Side("ottla", side.scratch / f"{side.name}-writing", side.stack)
    with (
        ottla.fresh() as broker,
        ottla.topic(broker, PARTITIONS) as topic,
        ottla.topic(broker, PARTITIONS) as other,
    ):
        warm_up = {"topic": other, "records": WARM_UP}
        asked = {"topic": topic, "records": records, "warm_up": warm_up}
        return {"rows": records / connector_seconds(side, "write", broker.bootstrap, asked)}


@contextlib.contextmanager
def filled_topics(side: Side, records: int) -> Iterator[tuple[str, str, str]]:
    """The address of an Ottla broker, a topic of `records`, and a small one for the warm-up."""
    ottla = Side("ottla", side.scratch / f"{side.name}-reading", side.stack)
    with (
        ottla.fresh() as broker,
        ottla.topic(broker, PARTITIONS) as topic,
        ottla.topic(broker, PARTITIONS) as small,
    ):
        for name, count in ((topic, records), (small, WARM_UP)):
            ottla.client(
                "produce", broker, name, records=count, value_bytes=VALUE_BYTES, partitions=PARTITIONS
            )
        yield broker.bootstrap, topic, small


def connector_seconds(side: Side, role: str, bootstrap: str, asked: dict[str, object]) -> float:
    spec = json.dumps({"connector": side.name, "bootstrap": bootstrap, **asked})
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_client", role, spec],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the connector {side.name} failed to {role}: {done.stderr.strip()[-2_000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def scenario(name: str, what: str, target: float, run: Callable[[Side, Sizes], dict[str, float]]) -> Scenario:
    return Scenario(name, what, (Metric("rows", "rows/s", target=target),), run, rounds_max=3)


SCENARIOS = (
    scenario(
        "spark-read", "a topic of 100-byte records as a batch, ours / Spark's own", 1.0, reading("read")
    ),
    scenario("spark-stream", "the same as a stream, AvailableNow, one batch", 1.0, reading("stream")),
    scenario(
        "spark-stream-250k",
        "the same, 250,000 records a batch",
        1.0,
        reading("stream", per_trigger=250_000),
    ),
    scenario("spark-write", "Parquet into a topic: ours exactly once / Spark's at least once", 0.8, writing),
)
