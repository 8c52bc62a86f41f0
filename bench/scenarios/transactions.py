"""Transactions: how many a second a producer can commit, small and large, and the throughput inside them."""

from collections.abc import Callable

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

PARTITIONS = 4
VALUE_BYTES = 1_000
RECORDS_A_TRANSACTION = 10_000


def a_second(records: int, value_bytes: int) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        broker = side.running()
        shape = {"records_a_transaction": records, "value_bytes": value_bytes, "partitions": PARTITIONS}
        with side.topic(broker, PARTITIONS) as topic:
            # Warm-up: the JVM has not run transactions before.
            side.client("transactions", broker, topic, run_s=sizes.of(5, 1), **shape)
            cpu_before = broker.cpu_seconds()
            run_s = sizes.of(10, 2)
            done = side.client("transactions", broker, topic, run_s=run_s, **shape)["transactions"]
            cpu = broker.cpu_seconds() - cpu_before
        return {"transactions": done, "broker CPU": 1_000 * cpu / (done * run_s)}

    return run


def throughput(side: Side, sizes: Sizes) -> dict[str, float]:
    broker = side.running()
    records = sizes.of(1_000_000, 100_000)
    shape = {
        "records": records,
        "records_a_transaction": RECORDS_A_TRANSACTION,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
    }
    with side.topic(broker, PARTITIONS) as topic:
        done = side.client("produce_in_transactions", broker, topic, **shape)
    return {"produce": records * VALUE_BYTES / 1e6 / done["seconds"]}


A_SECOND = (
    Metric("transactions", "1/s", target=2.0),
    Metric("broker CPU", "ms", higher_is_better=False),
)

SCENARIOS = (
    Scenario(
        "transactions-1",
        "transactions of one record of 100 bytes, one after the other",
        A_SECOND,
        a_second(1, 100),
    ),
    Scenario(
        "transactions-1000",
        f"transactions of 1,000 records of 100 bytes in {PARTITIONS} partitions, one after the other",
        A_SECOND,
        a_second(1_000, 100),
    ),
    Scenario(
        "transactions-1kb",
        f"records of 1 KB in {PARTITIONS} partitions, {RECORDS_A_TRANSACTION:,} to a transaction",
        (Metric("produce", "MB/s", target=1.5),),
        throughput,
    ),
)
