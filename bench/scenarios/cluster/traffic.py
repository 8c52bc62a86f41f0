"""Replicated traffic: three replicas, two of them must be in sync, acks=all."""

import os
from functools import partial

from confluent_kafka.admin import NewTopic

from bench.nodes import RunningCluster
from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.cluster.steps import steps
from bench.sides import Side

PARTITIONS = 6  # each node leads two
# At a rate of 500 a second Apache Kafka's three nodes fell behind on two cores, and its figures told nothing.
ROUND_TRIPS = 5_000


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    with steps() as taken, side.cluster() as cluster:
        warm_up(side, cluster, sizes)
        for name, step in (
            ("end to end", end_to_end),
            ("transactions of 1", partial(transactions, 1)),
            ("transactions of 1,000", partial(transactions, 1_000)),
            ("1 KB", partial(produce, "1 KB", 1_000, sizes.of(1_000_000, 50_000))),
            ("100 B", partial(produce, "100 B", 100, sizes.of(3_000_000, 100_000))),
        ):
            os.sync()
            taken.take(name, partial(step, side, cluster, sizes))
    return taken.measured


def new_topic(cluster: RunningCluster, name: str, partitions: int = PARTITIONS) -> str:
    cluster.create_topic(NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"}))
    return name


def warm_up(side: Side, cluster: RunningCluster, sizes: Sizes) -> None:
    """The JVM compiles hot code at run time: the first records of a benchmark must not pay for that."""
    topic = new_topic(cluster, "warm-up")
    size = {"records": sizes.of(200_000, 20_000), "partitions": PARTITIONS}
    side.client("produce", cluster, topic, value_bytes=1_000, **size)
    side.client("consume", cluster, topic, **size)
    end_to_end(side, cluster, sizes, "warm-up-end-to-end")


def end_to_end(
    side: Side, cluster: RunningCluster, sizes: Sizes, name: str = "end-to-end"
) -> dict[str, float]:
    topic = new_topic(cluster, name, 1)
    records = sizes.of(ROUND_TRIPS, ROUND_TRIPS // 5)
    done = side.client("round_trip", cluster, topic, records=records, value_bytes=100)
    return {"end to end, p50": done["p50_ms"], "end to end, p99": done["p99_ms"]}


def transactions(records: int, side: Side, cluster: RunningCluster, sizes: Sizes) -> dict[str, float]:
    partitions = 4
    topic = new_topic(cluster, f"transactions-{records}", partitions)
    shape = {"records_a_transaction": records, "value_bytes": 100, "partitions": partitions}
    side.client("transactions", cluster, topic, run_s=sizes.of(5, 1), **shape)
    done = side.client("transactions", cluster, topic, run_s=sizes.of(10, 2), **shape)
    return {f"transactions of {records:,}": done["transactions"]}


def produce(
    name: str, value_bytes: int, records: int, side: Side, cluster: RunningCluster, sizes: Sizes
) -> dict[str, float]:
    topic = new_topic(cluster, f"produce-{value_bytes}")
    before = cluster.cpu_seconds()
    done = side.client(
        "produce", cluster, topic, records=records, value_bytes=value_bytes, partitions=PARTITIONS
    )
    cpu = cluster.cpu_seconds() - before
    megabytes = records * value_bytes / 1e6
    return {f"produce {name}": megabytes / done["seconds"], f"CPU, {name}": 1_000 * cpu / megabytes}


SCENARIOS = (
    Scenario(
        "cluster-traffic",
        f"replication 3, min.insync.replicas 2, acks=all; {PARTITIONS} partitions, linger 5 ms, batches of 1 MB; CPU "
        f"of all nodes; end to end with 100 bytes, one record at a time, linger 0; transactions in 4 partitions",
        (
            Metric("produce 1 KB", "MB/s", target=1.5),
            Metric("CPU, 1 KB", "s/GB", higher_is_better=False, target=2.0),
            Metric("produce 100 B", "MB/s", target=1.5),
            Metric("CPU, 100 B", "s/GB", higher_is_better=False, target=2.0),
            Metric("end to end, p50", "ms", higher_is_better=False, target=1.5),
            Metric("end to end, p99", "ms", higher_is_better=False, target=1.5),
            Metric("transactions of 1", "1/s"),
            Metric("transactions of 1,000", "1/s"),
        ),
        run,
    ),
)
