"""Produce requests a second, each with one record of 100 bytes, many in flight: the cost of a request."""

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    records = sizes.of(200_000, 20_000)
    with side.topic(broker) as topic:
        done = side.client("produce", broker, topic, records=records, value_bytes=100, one_record=True)
    return {"requests": records / done["seconds"]}


SCENARIOS = (
    Scenario(
        "one-record",
        "one record of 100 bytes a request, acks=all, many requests in flight",
        (Metric("requests", "1/s", target=3.0),),
        run,
    ),
)
