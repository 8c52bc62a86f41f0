"""Partitions that move to another broker while a client produces to the cluster."""

import os
import time

from confluent_kafka.admin import NewTopic

from bench.nodes import TIMEOUT_S, RunningCluster
from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.cluster.load import Rate, steady_load
from bench.sides import Side
from ottla.admin.cluster import Cluster
from ottla.admin.reassignments import list_ongoing, reassign
from ottla.model.ids import TopicPartition

MOVED, LOAD = "moved", "load"
PARTITIONS = 12
LOAD_PARTITIONS = 6
LOAD_MB_A_SECOND = 40
CHUNK_MB = 1_000  # of one client: its queue must hold it
POLL_S = 0.1
# The first replica stays: the records go from there to the new one.
BEFORE, AFTER = ((1, 2), (2, 1)), ((1, 3), (2, 3))


def run(side: Side, sizes: Sizes) -> dict[str, float]:
    megabytes = sizes.of(10_000, 500)
    with side.cluster() as cluster:
        replicas = [list(BEFORE[number % 2]) for number in range(PARTITIONS)]
        cluster.create_topic(NewTopic(MOVED, PARTITIONS, replica_assignment=replicas))
        cluster.create_topic(NewTopic(LOAD, LOAD_PARTITIONS, 3, config={"min.insync.replicas": "2"}))
        fill(side, cluster, megabytes)
        os.sync()
        with steady_load(cluster, LOAD, LOAD_PARTITIONS, LOAD_MB_A_SECOND):
            time.sleep(sizes.of(10, 2))  # Kafka's nodes compile the code of the load
            alone = Rate.begin(cluster, LOAD, LOAD_PARTITIONS)
            time.sleep(sizes.of(10, 2))
            alone_rate = alone.read()
            beside, began = Rate.begin(cluster, LOAD, LOAD_PARTITIONS), time.monotonic()
            move(cluster)
            seconds, kept = time.monotonic() - began, beside.read() / alone_rate
    return {"moved": seconds, "rate": megabytes / seconds, "load": alone_rate, "load kept": kept}


def fill(side: Side, cluster: RunningCluster, megabytes: int) -> None:
    for filled in range(0, megabytes, CHUNK_MB):
        chunk = min(CHUNK_MB, megabytes - filled)
        size = {"records": chunk * 1_000, "expected_end": (filled + chunk) * 1_000}
        side.client("produce", cluster, MOVED, value_bytes=1_000, partitions=PARTITIONS, **size)


def move(cluster: RunningCluster) -> None:
    """Returns when the new replicas are in sync, and the old ones are gone from the metadata."""
    asked = Cluster(cluster.bootstrap, {"log_level": 0})
    reassign(asked, {TopicPartition(MOVED, number): AFTER[number % 2] for number in range(PARTITIONS)})
    deadline = time.monotonic() + 4 * TIMEOUT_S
    while list_ongoing(asked):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the partitions of {MOVED} did not move within {4 * TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


SCENARIOS = (
    Scenario(
        "cluster-reassign",
        f"10 GB (quick: 0.5) in {PARTITIONS} partitions of replication 2 get another second replica, without a "
        f"throttle, while a client sends {LOAD_MB_A_SECOND} MB a second to a topic of replication 3, acks=all; load: "
        "what is acknowledged of it before, and the part of that which is kept meanwhile",
        (
            Metric("moved", "s", higher_is_better=False, target=1.0),
            Metric("rate", "MB/s"),
            Metric("load", "MB/s"),
            Metric("load kept", "x", least=0.8),
        ),
        run,
        rounds_max=1,
    ),
)
