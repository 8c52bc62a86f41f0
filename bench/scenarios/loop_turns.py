"""The longest turn of Ottla's event loop, during which every client waits. Apache Kafka has no such loop.

The broker itself measures it and logs it when it stops. It includes the time in which the machine gave the processor to
someone else, a client for example.
"""

import re

from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import RunningBroker

from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.compaction import clean, dirty_topic
from bench.scenarios.growth import VALUE_BYTES, fill
from bench.sides import ADMIN_TIMEOUT_S, Side

LONGEST_TURN = re.compile(r"the longest turn of the event loop took ([\d.]+) ms")
TURN_MS_MAX = 20.0
TOPICS_A_REQUEST = 50


def full_load(side: Side, sizes: Sizes) -> dict[str, float]:
    with side.fresh() as broker:
        records = sizes.of(1_000_000, 100_000)
        for partitions in (1, 200):
            size = {"records": records, "value_bytes": VALUE_BYTES, "partitions": partitions}
            with side.topic(broker, partitions) as topic:
                side.client("produce", broker, topic, **size)
                side.client("consume", broker, topic, **size)
        with side.topic(broker) as topic:
            side.client("produce", broker, topic, records=records // 10, value_bytes=100, one_record=True)
        return longest_turn(broker)


def topic_creations(side: Side, sizes: Sizes) -> dict[str, float]:
    topics = sizes.of(2_000, 200)
    with side.fresh() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for first in range(0, topics, TOPICS_A_REQUEST):
            new = [NewTopic(f"turn-{number}", 1, 1) for number in range(first, first + TOPICS_A_REQUEST)]
            for created in admin.create_topics(new).values():
                created.result(ADMIN_TIMEOUT_S)
        return longest_turn(broker)


def compaction(side: Side, sizes: Sizes) -> dict[str, float]:
    records = sizes.of(400, 60) * 1_000
    with side.fresh() as broker, dirty_topic(broker, VALUE_BYTES, records, records // 2) as (topic, _):
        clean(broker, topic, partitions=1)
        return longest_turn(broker)


def cold_open(side: Side, sizes: Sizes) -> dict[str, float]:
    """The turns of a broker that starts after kill -9 and reads from the middle of a large log."""
    megabytes = sizes.of(10_000, 200)
    with side.fresh() as broker, side.topic(broker) as topic:
        fill(side, broker, topic, megabytes)
        broker.kill()
        broker.start()
        read = {"records": sizes.of(50_000, 5_000), "start_offset": megabytes * 1_000 // 2}
        side.client("consume", broker, topic, **read)
        return longest_turn(broker)


def longest_turn(broker: RunningBroker) -> dict[str, float]:
    """The longest turn of the broker's last run. Restarts the broker, so that the caller can delete its topics."""
    broker.restart()
    return {"longest turn": float(LONGEST_TURN.findall(broker.log_text())[-1])}


METRICS = (Metric("longest turn", "ms", higher_is_better=False, limit=TURN_MS_MAX),)

SCENARIOS = tuple(
    Scenario(name, what, METRICS, run, rounds_max=rounds, sides=("ottla",))
    for name, what, run, rounds in (
        ("turns-load", "full load: 1 KB to 1 and 200 partitions, then one-record requests", full_load, 3),
        ("turns-topics", f"2,000 topics, {TOPICS_A_REQUEST} a request (quick: 200)", topic_creations, 3),
        ("turns-compaction", "400 MB of a compacted topic written and cleaned (quick: 60 MB)", compaction, 3),
        ("turns-open", "10 GB opened after kill -9 and read from the middle (quick: 200 MB)", cold_open, 1),
    )
)
