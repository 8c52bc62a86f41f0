"""What metrics cost: throughput with metrics against throughput without, and the longest turn of scrapes."""

import re
import time
import urllib.request
from statistics import median

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import RunningBroker

from bench.scenario import Metric, Scenario, Sizes
from bench.scenarios.growth import VALUE_BYTES
from bench.scenarios.loop_turns import longest_turn
from bench.sides import ADMIN_TIMEOUT_S, Side

WITH_METRICS = {"ottla.metrics.address": "127.0.0.1:0"}
URL = re.compile(r"^metrics (\S+)$", re.MULTILINE)
COST_PERCENT_MAX = 3.0
TURN_MS_MAX = 5.0
PASSES = 5
SCRAPES = 20
OPEN_TIMEOUT_S = 120.0
PARTITIONS_A_TOPIC = 1_000


def cost(side: Side, sizes: Sizes) -> dict[str, float]:
    """Both brokers run; they take turns, so that a busy moment of the machine meets both. Medians of the passes."""
    records = sizes.of(1_000_000, 100_000)
    seconds: dict[str, dict[bool, list[float]]] = {
        name: {False: [], True: []} for name in ("produce", "consume", "one-record")
    }
    with side.fresh() as plain, side.fresh(settings=WITH_METRICS) as metered:
        brokers = {False: plain, True: metered}
        for number in range(PASSES + 1):
            for with_metrics in (False, True) if number % 2 else (True, False):
                measured = _pass(side, brokers[with_metrics], records)
                if with_metrics:
                    scrape(metered)
                for name, taken in measured.items() if number else ():  # the first pass warms both up
                    seconds[name][with_metrics].append(taken)
    return {name: 100 * (median(found[True]) / median(found[False]) - 1) for name, found in seconds.items()}


def _pass(side: Side, broker: RunningBroker, records: int) -> dict[str, float]:
    with side.topic(broker) as topic:
        size = {"records": records, "value_bytes": VALUE_BYTES}
        produced = side.client("produce", broker, topic, **size)["seconds"]
        consumed = side.client("consume", broker, topic, records=records)["seconds"]
    with side.topic(broker) as topic:
        small = {"records": records // 10, "value_bytes": 100, "one_record": True}
        one_record = side.client("produce", broker, topic, **small)["seconds"]
    return {"produce": produced, "consume": consumed, "one-record": one_record}


def scrape(broker: RunningBroker) -> bytes:
    """Of the broker's last run: a restart takes another port."""
    with urllib.request.urlopen(URL.findall(broker.log_text())[-1], timeout=60) as response:
        text: bytes = response.read()
        return text


def scraped_turns(side: Side, sizes: Sizes) -> dict[str, float]:
    """Many partitions and a group that has committed all of them; the broker does nothing but answer scrapes."""
    topics = [f"wide-{number}" for number in range(sizes.of(10, 1))]
    with side.fresh(settings=WITH_METRICS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for topic in topics:  # a request may create 10,000 records of metadata
            admin.create_topics([NewTopic(topic, PARTITIONS_A_TOPIC, 1)])[topic].result(ADMIN_TIMEOUT_S)
        _commit_all(broker, topics)
        broker.restart()
        _wait_until_open(broker, len(topics) * PARTITIONS_A_TOPIC)
        # The start, with 10,000 logs to open, is not what is measured: the watch begins after it.
        began = time.monotonic()
        size = max(len(scrape(broker)) for _ in range(SCRAPES))
        seconds = (time.monotonic() - began) / SCRAPES
        return longest_turn(broker) | {"scrape": seconds, "size": size / 1e6}


def _commit_all(broker: RunningBroker, topics: list[str]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
    for topic in topics:
        offsets = [TopicPartition(topic, number, 0) for number in range(PARTITIONS_A_TOPIC)]
        consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _wait_until_open(broker: RunningBroker, partitions: int) -> None:
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    while scrape(broker).count(b"\nkafka_consumergroup_lag{") < partitions:
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"the scrape does not have {partitions} partitions after {OPEN_TIMEOUT_S:.0f} s"
            )
        time.sleep(0.2)


SCENARIOS = (
    Scenario(
        "metrics-cost",
        "1 KB records and one-record requests with metrics on, against metrics off",
        tuple(
            Metric(name, "% slower", higher_is_better=False, limit=COST_PERCENT_MAX)
            for name in ("produce", "consume", "one-record")
        ),
        cost,
        rounds_max=1,
        sides=("ottla",),
    ),
    Scenario(
        "metrics-scrape",
        "scrapes of 10,000 partitions with a group (quick: 1,000)",
        (
            Metric("longest turn", "ms", higher_is_better=False, limit=TURN_MS_MAX),
            Metric("scrape", "s", higher_is_better=False),
            Metric("size", "MB", higher_is_better=False),
        ),
        scraped_turns,
        sides=("ottla",),
    ),
)
