"""Compaction: both clean the same records in closed segments; and its effect on traffic at the same time."""

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.interop.brokers import RunningBroker

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import ADMIN_TIMEOUT_S, Side

SEGMENT_BYTES = 32 << 20
NEVER, AT_ONCE = "1.0", "0.0"  # min.cleanable.dirty.ratio
CHECKPOINT = "cleaner-offset-checkpoint"
MIB = 1_000_000
BATCH = 10_000
LATENCY_RATE = 500
WAIT_S = 600
# The defaults of clients: 16 KB in Java, a little more in librdkafka.
PRODUCER = {"linger.ms": 20, "batch.size": 16_384, "queue.buffering.max.kbytes": 2_097_151,
            "queue.buffering.max.messages": 10_000_000}  # fmt: skip


def cleaning(side: Side, sizes: Sizes) -> dict[str, float]:
    """MB of closed segments a second, by the size of the values and the number of keys."""
    broker = side.running()
    size = sizes.of(400, 60) * MIB
    found = {}
    for value_bytes in (1_000, 100):
        records = size // (value_bytes + 30)
        for name, keys in (("few", records // 1_000), ("many", records // 2)):
            with dirty_topic(broker, value_bytes, records, keys) as (topic, dirty_bytes):
                seconds = clean(broker, topic, partitions=1)
                found[f"{value_bytes} B, {name} keys"] = dirty_bytes / MIB / seconds
    return found


def beside_traffic(side: Side, sizes: Sizes) -> dict[str, float]:
    """The p99 of producing a record during compaction, divided by the p99 without it.

    Measured turn about: what else the machine does is in both, and a single stall of the disk decides neither.
    """
    broker = side.running()
    partitions, records = sizes.of(4, 2), sizes.of(300, 60) * MIB // 1_030
    spec = {"value_bytes": 100, "rate": LATENCY_RATE, "records": LATENCY_RATE * sizes.of(4, 2)}
    without, beside = [], []
    for _ in range(sizes.of(5, 2)):
        with (
            dirty_topic(broker, 1_000, records, records // 2, partitions) as (dirty, _),
            side.topic(broker) as topic,
            ThreadPoolExecutor() as pool,
        ):
            without.append(side.client("produce_latency", broker, topic, **spec)["p99_ms"])
            measuring = pool.submit(side.client, "produce_latency", broker, topic, **spec)
            clean(broker, dirty, partitions)
            beside.append(measuring.result()["p99_ms"])
    return {"p99 without": median(without), "p99 with / without": median(beside) / median(without)}


@contextlib.contextmanager
def dirty_topic(
    broker: RunningBroker, value_bytes: int, records: int, keys: int, partitions: int = 1
) -> Iterator[tuple[str, int]]:
    """A compacted topic that is not cleaned yet, and how many bytes of it lie in closed segments."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for node in admin.list_topics(timeout=ADMIN_TIMEOUT_S).brokers:
        set_config(admin, ResourceType.BROKER, str(node), "log.cleaner.backoff.ms", "100")
    name = f"compacted-{time.monotonic_ns()}"
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": NEVER,
        # The default: replaced files are not deleted during the measurement.
        "file.delete.delay.ms": "60000",
    }
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(ADMIN_TIMEOUT_S)
    random, value = Random(1), os.urandom(value_bytes)
    producer = Producer({"bootstrap.servers": broker.bootstrap, **PRODUCER})
    for partition in range(partitions):
        for first in range(0, records, BATCH):
            producer.produce_batch(
                name,
                [
                    {"key": b"%016d" % random.randrange(keys), "value": value, "partition": partition}
                    for _ in range(min(BATCH, records - first))
                ],
            )
            producer.poll(0)
        if producer.flush(WAIT_S):
            raise RuntimeError("not all records were acknowledged")
    os.sync()
    closed = [
        path.stat().st_size
        for partition in range(partitions)
        for path in sorted((broker.data_dir / f"{name}-{partition}").glob("*.log"))[:-1]
    ]
    try:
        yield name, sum(closed)
    finally:
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)


def clean(broker: RunningBroker, topic: str, partitions: int) -> float:
    """Makes the topic due for compaction. Returns the seconds until the checkpoint has the last partition as clean."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    began = time.monotonic()
    set_config(admin, ResourceType.TOPIC, topic, "min.cleanable.dirty.ratio", AT_ONCE)
    checkpoint = broker.data_dir / CHECKPOINT
    while not checkpoint.exists() or checkpoint.read_text().count(f"{topic} ") < partitions:
        if time.monotonic() - began > WAIT_S:
            raise RuntimeError(f"{topic} was not cleaned within {WAIT_S} s")
        time.sleep(0.01)
    return time.monotonic() - began


def set_config(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(ADMIN_TIMEOUT_S)


SCENARIOS = (
    Scenario(
        "compaction",
        "closed segments cleaned by one cleaner, 16 KB batches; the first run also starts its process",
        tuple(
            Metric(f"{value_bytes} B, {keys} keys", "MB/s", target=1.0)
            for value_bytes in (1_000, 100)
            for keys in ("few", "many")
        ),
        cleaning,
        rounds_max=3,
    ),
    Scenario(
        "compaction beside traffic",
        f"p99 of producing {LATENCY_RATE} records a second, and while compaction runs, over what it is without",
        (
            Metric("p99 without", "ms", higher_is_better=False),
            Metric("p99 with / without", "x", higher_is_better=False, limit=1.5),
        ),
        beside_traffic,
        rounds_max=3,
    ),
)
