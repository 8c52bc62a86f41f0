"""How cost grows with partitions, connections and the size of the log. Each step has a fresh broker."""

import contextlib
import time
from collections.abc import Callable

from tests.interop.brokers import RunningBroker
from tests.interop.wire import API_VERSIONS, WireClient, request

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import Side

VALUE_BYTES = 1_000


def with_partitions(partitions: int) -> Callable[[Side, Sizes], dict[str, float]]:
    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        records = sizes.of(300_000, 30_000)
        size = {"records": records, "value_bytes": VALUE_BYTES, "partitions": partitions}
        megabytes = records * VALUE_BYTES / 1e6
        with side.fresh() as broker, side.topic(broker, partitions) as topic:
            produced = side.client("produce", broker, topic, **size)
            consumed = side.client("consume", broker, topic, **size)
            memory = broker.memory_kb()
            broker.restart()
            return {
                "produce": megabytes / produced["seconds"],
                "consume": megabytes / consumed["seconds"],
                "memory": memory / 1_000,
                "open again": broker.start_seconds,
            }

    return run


def with_connections(connections: int) -> Callable[[Side, Sizes], dict[str, float]]:
    """The cost of idle connections: one client sends while the others only stay connected."""

    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        records = sizes.of(100_000, 10_000)
        with side.fresh() as broker, side.topic(broker) as topic, contextlib.ExitStack() as others:
            began = time.monotonic()
            for _ in range(connections - 1):
                others.enter_context(WireClient(broker.bootstrap)).ask(request(API_VERSIONS, 0))
            connect_s = time.monotonic() - began
            done = side.client("produce", broker, topic, records=records, value_bytes=100, one_record=True)
            measured = {"requests": records / done["seconds"], "memory": broker.memory_kb() / 1_000}
            others_count = connections - 1
            return measured | {"connect": 1_000 * connect_s / others_count} if others_count else measured

    return run


def fill(side: Side, broker: RunningBroker, topic: str, megabytes: int) -> None:
    """Records of 1 KB into an empty topic, at most a million by one client."""
    for filled in range(0, megabytes, 1_000):
        chunk = min(1_000, megabytes - filled) * 1_000
        end = filled * 1_000 + chunk
        side.client("produce", broker, topic, records=chunk, value_bytes=VALUE_BYTES, expected_end=end)


def with_log_of(full_mb: int, quick_mb: int) -> Callable[[Side, Sizes], dict[str, float]]:
    """A log of this size: opens it after a clean stop and after kill -9, and reads from its middle."""

    def run(side: Side, sizes: Sizes) -> dict[str, float]:
        megabytes = sizes.of(full_mb, quick_mb)
        with side.fresh() as broker, side.topic(broker) as topic:
            fill(side, broker, topic, megabytes)
            broker.restart()
            clean_s = broker.start_seconds
            broker.kill()
            broker.start()
            read = {"records": sizes.of(50_000, 5_000), "start_offset": megabytes * 1_000 // 2}
            consumed = side.client("consume", broker, topic, **read)
            return {
                "open after clean stop": clean_s,
                "open after kill -9": broker.start_seconds,
                "first record from the middle": 1_000 * consumed["first_record_s"],
                "consume from the middle": read["records"] * VALUE_BYTES / 1e6 / consumed["seconds"],
            }

    return run


PARTITION_METRICS = (
    Metric("produce", "MB/s"),
    Metric("consume", "MB/s"),
    Metric("memory", "MB", higher_is_better=False),
    Metric("open again", "s", higher_is_better=False),
)
CONNECTION_METRICS = (Metric("requests", "1/s"), Metric("memory", "MB", higher_is_better=False))
CONNECT = Metric("connect", "ms", higher_is_better=False)
LOG_METRICS = (
    Metric("open after clean stop", "s", higher_is_better=False),
    Metric("open after kill -9", "s", higher_is_better=False),
    Metric("first record from the middle", "ms", higher_is_better=False),
    Metric("consume from the middle", "MB/s"),
)

SCENARIOS = (
    *(
        Scenario(
            f"partitions-{n}", f"{n:,} partitions, fresh broker", PARTITION_METRICS, with_partitions(n), 1
        )
        for n in (1, 100, 2_000)
    ),
    Scenario("connections-1", "one client alone", CONNECTION_METRICS, with_connections(1), 1),
    *(
        Scenario(
            f"connections-{n}",
            f"one client, {n - 1:,} others connected and silent",
            (*CONNECTION_METRICS, CONNECT),
            with_connections(n),
            1,
        )
        for n in (100, 1_000)
    ),
    Scenario("log-small", "a log of 100 MB (quick: 20 MB)", LOG_METRICS, with_log_of(100, 20), 1),
    Scenario("log-large", "a log of 10 GB (quick: 200 MB)", LOG_METRICS, with_log_of(10_000, 200), 1),
)
