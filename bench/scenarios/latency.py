"""End to end: from the producer's call until the consumer has the record, at a moderate rate."""

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

RATE = 500


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    with side.topic(broker) as topic:
        records = sizes.of(RATE * 10, RATE * 2)
        taken = side.client("latency", broker, topic, records=records, value_bytes=100, rate=RATE)
    return {"p50": taken["p50_ms"], "p99": taken["p99_ms"]}


SCENARIOS = (
    Scenario(
        "latency",
        f"produce to consume of 100 bytes, {RATE} records a second, acks=all, linger 0",
        (
            Metric("p50", "ms", higher_is_better=False, target=1.5),
            Metric("p99", "ms", higher_is_better=False, target=1.5),
        ),
        run,
    ),
)
