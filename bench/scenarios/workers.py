"""Megabytes a second through one worker and through two (`ottla serve --workers`), on the same machine.

Clients and workers share its cores. On two cores, a client that needs one of them leaves less than one for a second
worker: the ratio says what a user of such a machine gets, not what a worker costs.
"""

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

VALUE_BYTES = 1_000
PARTITIONS = 12
WORKERS = (1, 2)


def one_and_two(side: Side, sizes: Sizes) -> dict[str, float]:
    records = sizes.of(1_000_000, 100_000)
    megabytes = records * VALUE_BYTES / 1e6
    size = {"records": records, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS}
    measured = {}
    for workers in WORKERS:
        with side.fresh("--workers", str(workers)) as broker:
            with side.topic(broker, PARTITIONS) as topic:  # the first requests import modules
                warm_up = {**size, "records": records // 10}
                side.client("produce", broker, topic, **warm_up)
                side.client("consume", broker, topic, **warm_up)
            with side.topic(broker, PARTITIONS) as topic:
                produced = side.client("produce", broker, topic, **size)
                consumed = side.client("consume", broker, topic, **size)
                small = {**size, "records": records // 20, "value_bytes": 100, "one_record": True}
                with side.topic(broker, PARTITIONS) as other:
                    requests = side.client("produce", broker, other, **small)
        measured[f"produce, {workers}"] = megabytes / produced["seconds"]
        measured[f"consume, {workers}"] = megabytes / consumed["seconds"]
        measured[f"requests, {workers}"] = small["records"] / requests["seconds"]
    return measured


SCENARIOS = (
    Scenario(
        "workers",
        f"one worker and two: 1 KB to {PARTITIONS} partitions, acks=all; requests with one record of 100 bytes",
        tuple(
            Metric(f"{what}, {workers}", unit)
            for what, unit in (("produce", "MB/s"), ("consume", "MB/s"), ("requests", "1/s"))
            for workers in WORKERS
        ),
        one_and_two,
        sides=("ottla",),
    ),
)
