"""The time until a broker serves, and its memory when idle and under load."""

import time

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

SETTLE_S = 2.0


def ready(side: Side, sizes: Sizes) -> dict[str, float]:
    """A cold process with an empty, formatted data directory, until it responds."""
    with side.fresh() as broker:
        return {"start": broker.start_seconds}


def memory(side: Side, sizes: Sizes) -> dict[str, float]:
    with side.fresh() as broker:
        time.sleep(SETTLE_S)
        idle = broker.memory_kb()
        records = sizes.of(500_000, 50_000)
        with side.topic(broker, 200) as topic:
            size = {"records": records, "value_bytes": 1_000, "partitions": 200}
            side.client("produce", broker, topic, **size)
            side.client("consume", broker, topic, **size)
        with side.topic(broker) as topic:
            side.client("produce", broker, topic, records=records // 10, value_bytes=100, one_record=True)
        return {"idle": idle / 1_000, "most under load": broker.memory_kb("VmHWM") / 1_000}


SCENARIOS = (
    Scenario(
        "ready",
        "from the start of the process until it responds",
        (Metric("start", "s", higher_is_better=False, target=10.0, limit=0.4),),
        ready,
    ),
    Scenario(
        "memory",
        "resident memory of the broker (Kafka: heap of 1 GB)",
        (
            Metric("idle", "MB", higher_is_better=False, limit=70.0),
            Metric("most under load", "MB", higher_is_better=False, limit=150.0),
        ),
        memory,
    ),
)
