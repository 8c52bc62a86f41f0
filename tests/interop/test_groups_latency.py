"""The latency of records to a running consumer in a group, as a ratio to Apache Kafka in the same run.

Each client is a group of one, with its default settings, on Ottla and on Kafka at the same time: what else the machine
does slows both. 40 records a second are far from what either can do, so a record waits only where client or broker
make it wait, for example when the client awaits another response before it goes on.
"""

import contextlib
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.interop.brokers import RunningBroker, run_kafka, run_ottla
from tests.interop.group_clients import EventProcess
from tests.interop.kafka_jars import java_command
from tests.interop.kafkajs import SOURCE, ensure_kafkajs
from tests.interop.librdkafka import create_topic, flush, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]

JAVA = Path(__file__).parent / "java"
RECORDS_A_SECOND = 40
WARM_UP_RECORDS = 40  # JVMs are slow at first
# Six seconds: clients send a heartbeat every three, so a delay by it is visible in the upper tenth at least.
RECORDS = 240
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
# How much later than on Kafka records may arrive: a factor, and milliseconds for the scheduling of processes.
MEDIAN_RATIO_MAX, MEDIAN_SLACK_MS = 3.0, 10.0
P90_RATIO_MAX, P90_SLACK_MS = 3.0, 50.0

Commands = Callable[[Path, str, str, str], list[str]]


def python_member(*words: str) -> Commands:
    client, *rest = words
    return lambda _, *where: [sys.executable, "-m", "tests.interop.latency_member", client, *where, *rest]


def java_member(protocol: str) -> Commands:
    source = str(JAVA / "LatencyMember.java")
    return lambda libs, *where: java_command(libs, source, *where, protocol)


def node_member(_: Path, *where: str) -> list[str]:
    return ["env", f"KAFKAJS_FROM={ensure_kafkajs()}", "node", str(SOURCE / "latency_member.mjs"), *where]


CLIENTS: dict[str, Commands] = {
    "confluent-kafka classic": python_member("confluent-kafka", "classic"),
    "confluent-kafka consumer": python_member("confluent-kafka", "consumer"),
    "kafka-python": python_member("kafka-python"),
    "aiokafka": python_member("aiokafka"),
    "java classic": java_member("classic"),
    "java consumer": java_member("consumer"),
    "kafkajs": node_member,
}


class LatencyMember(EventProcess):
    def name_of(self, event: dict[str, Any]) -> str:
        return str(event["event"])

    def latencies_ms(self) -> list[float]:
        return [event["latency_ms"] for event in self.named("record")]


@dataclass(frozen=True)
class Latency:
    p50_ms: float
    p90_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies_ms: list[float]) -> "Latency":
        percentiles = statistics.quantiles(latencies_ms, n=100, method="inclusive")
        return cls(percentiles[49], percentiles[89], percentiles[98])

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:7.1f}  p90 {self.p90_ms:7.1f}  p99 {self.p99_ms:7.1f} ms"


class Side:
    """A broker, the member that reads from it, and the producer that writes to it."""

    def __init__(self, broker: RunningBroker, command: Commands, libs: Path) -> None:
        name = f"latency-{uuid.uuid4().hex[:12]}"
        create_topic(broker.bootstrap, name)
        self._topic = name
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self.member = LatencyMember(command(libs, broker.bootstrap, name, name))

    def send(self) -> None:
        self._producer.produce(self._topic, f"{time.time() * 1000:.3f}".encode())
        self._producer.poll(0)

    def finish(self, count: int) -> Latency:
        flush(self._producer)
        received = self.member.latencies_ms
        wait_until(lambda: len(received()) >= count, f"{count} records are at {self.member}")
        assert len(received()) == count
        return Latency.of(received()[WARM_UP_RECORDS:])


def send_at_a_steady_pace(sides: list[Side], count: int) -> None:
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / RECORDS_A_SECOND - time.monotonic()))
        for side in sides:
            side.send()


@pytest.fixture(scope="module")
def two_brokers(
    kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    folder = tmp_path_factory.mktemp("latency")
    with (
        run_ottla(folder / "ottla", set=SETTINGS) as ottla,
        run_kafka(folder / "kafka", set=SETTINGS, as_shipped=True) as kafka,
    ):
        yield ottla, kafka


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=pytest.mark.node if name == "kafkajs" else ()) for name in CLIENTS]
)
def test_records_arrive_about_as_fast_as_from_kafka(
    kafka_libs: Path,
    two_brokers: tuple[RunningBroker, RunningBroker],
    record_property: Callable[[str, object], None],
    client: str,
) -> None:
    with contextlib.ExitStack() as stack:
        sides: list[Side] = []
        for broker in two_brokers:
            sides.append(Side(broker, CLIENTS[client], kafka_libs))
            stack.callback(sides[-1].member.kill)
        for side in sides:
            side.member.wait_for("assigned")
        count = WARM_UP_RECORDS + RECORDS
        send_at_a_steady_pace(sides, count)
        ottla, kafka = (side.finish(count) for side in sides)
    ratio = ottla.p50_ms / kafka.p50_ms
    record_property("latency", f"{client:<25} ottla {ottla}   kafka {kafka}   p50 {ratio:5.2f} x")
    assert ottla.p50_ms <= MEDIAN_RATIO_MAX * kafka.p50_ms + MEDIAN_SLACK_MS, f"ottla {ottla}, kafka {kafka}"
    assert ottla.p90_ms <= P90_RATIO_MAX * kafka.p90_ms + P90_SLACK_MS, f"ottla {ottla}, kafka {kafka}"
