"""Megabytes a second through one partition or two hundred: produce to an empty topic, then consume all of it."""

from collections.abc import Callable

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side


def produce_and_consume(
    value_bytes: int, partitions: int, full: int, quick: int
) -> Callable[..., dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        broker = side.running()
        records = sizes.of(full, quick)
        megabytes = records * value_bytes / 1e6
        size = {"records": records, "value_bytes": value_bytes, "partitions": partitions}
        with side.topic(broker, partitions) as topic:
            cpu_before = broker.cpu_seconds()
            produced = side.client("produce", broker, topic, **size)
            consumed = side.client("consume", broker, topic, **size)
            cpu = broker.cpu_seconds() - cpu_before
        return {
            "produce": megabytes / produced["seconds"],
            "consume": megabytes / consumed["seconds"],
            "broker CPU": 1_000 * cpu / megabytes,
        }

    return run


# For a GB in and out. It shows a difference even if the client is the bottleneck on both sides.
BROKER_CPU = Metric("broker CPU", "s/GB", higher_is_better=False)

SCENARIOS = (
    Scenario(
        "1kb",
        "records of 1 KB, one partition, acks=all, linger 5 ms, batches of 1 MB",
        (Metric("produce", "MB/s", target=1.5), Metric("consume", "MB/s", target=1.2), BROKER_CPU),
        produce_and_consume(1_000, 1, full=1_000_000, quick=100_000),
    ),
    Scenario(
        "100b",
        "records of 100 bytes, one partition, acks=all, linger 5 ms, batches of 1 MB",
        (Metric("produce", "MB/s", target=1.5), Metric("consume", "MB/s"), BROKER_CPU),
        produce_and_consume(100, 1, full=3_000_000, quick=300_000),
    ),
    Scenario(
        "200-partitions",
        "records of 1 KB to 200 partitions in turn, acks=all, linger 5 ms, batches of 1 MB",
        (Metric("produce", "MB/s", target=1.5), Metric("consume", "MB/s", target=1.0), BROKER_CPU),
        produce_and_consume(1_000, 200, full=1_000_000, quick=100_000),
    ),
)
