"""Helpers with confluent-kafka that most tests need: create a topic, write records, read them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 30.0


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(0.02)


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Returns when the topic exists and each partition has its leader."""
    admin = admin_of(bootstrap)
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([topic], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def is_led() -> bool:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        return len(found) == partitions and all(p.leader >= 0 for p in found.values())

    wait_until(is_led, f"every partition of {name} has a leader")
    return name


@contextlib.contextmanager
def consumer_at(bootstrap: str, positions: Sequence[TopicPartition], **config: object) -> Iterator[Consumer]:
    """A consumer with assigned partitions."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "by-hand",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    consumer = Consumer(settings)
    try:
        consumer.assign(list(positions))
        yield consumer
    finally:
        consumer.close()


def read_records(
    bootstrap: str, topic: str, count: int, partitions: Sequence[int] = (0,), **config: object
) -> list[Message]:
    """The first `count` records of the partitions together, read from their beginning."""
    with consumer_at(bootstrap, [TopicPartition(topic, p, 0) for p in partitions], **config) as consumer:
        return take(consumer, count)


def take(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Message]:
    """The next `count` records; an error in between is raised."""
    records: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        for message in consumer.consume(min(count - len(records), 10_000), timeout=0.2):
            error = message.error()
            if error is not None and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
            if error is None:
                records.append(message)
        if time.monotonic() > deadline:
            raise AssertionError(f"{len(records)} of {count} records within {timeout_s:.0f} s")
    return records


class Deliveries:
    """Collects the delivery report of each record, in the order of the broker's responses."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.delivered.append(message)


def produce_values(
    bootstrap: str, topic: str, values: Sequence[bytes | None], **config: object
) -> list[Message]:
    """Sends the values to partition 0, one record each, and returns them as delivered (with offsets)."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    deliveries = Deliveries()
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=deliveries)
    flush(producer)
    if deliveries.errors:
        raise KafkaException(deliveries.errors[0])
    return deliveries.delivered


def flush(producer: Producer, timeout_s: float = 2 * TIMEOUT_S) -> None:
    left = producer.flush(timeout_s)
    if left:
        raise AssertionError(f"{left} records were not acknowledged within {timeout_s:.0f} s")
