"""Topics for the connector's tests, filled by confluent-kafka, and the rows that must come out of them."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions, read_options

READ_COMMITTED: dict[str, Any] = {"kafka.isolation.level": "read_committed"}

Reading = Callable[[ReadOptions, OffsetRange], Iterable[pa.RecordBatch]]


class Sent(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int = 0


class Topics:
    """Of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self.admin = AdminClient(self.client)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        before = TopicPartition(topic, partition, offset)
        for answer in self.admin.delete_records([before]).values():
            answer.result()

    def produce(self, topic: str, records: Iterable[Sent], **config: Any) -> None:
        failed: list[KafkaError] = []
        producer = Producer({**self.client, "linger.ms": 5, **config})
        send(producer, topic, records, failed)
        assert producer.flush(30) == 0
        assert not failed

    def transaction(self, topic: str, records: Sequence[Sent], *, commit: bool) -> None:
        with self.open_transaction(topic, records) as producer:
            if commit:
                producer.commit_transaction(30)

    @contextmanager
    def open_transaction(self, topic: str, records: Sequence[Sent]) -> Iterator[Producer]:
        """Aborted at the end, where it was not committed."""
        producer = Producer({**self.client, "transactional.id": f"txn-{uuid.uuid4().hex[:12]}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        send(producer, topic, records, [])
        producer.flush(30)
        yield producer
        with suppress(KafkaException):
            producer.abort_transaction(30)

    def options(self, *, streaming: bool = False, **options: Any) -> ReadOptions:
        return read_options({"kafka.bootstrap.servers": self.bootstrap, **options}, streaming=streaming)


def send(producer: Producer, topic: str, records: Iterable[Sent], failed: list[KafkaError]) -> None:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        producer.produce(
            topic,
            record.value,
            key=record.key,
            partition=record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=delivered,
        )
        producer.poll(0)


def values(count: int, start: int = 0, partition: int = 0) -> list[Sent]:
    return [Sent(b"%d" % number, partition=partition) for number in range(start, start + count)]


def rows(read: Reading, options: ReadOptions, ranges: Iterable[OffsetRange]) -> list[dict[str, Any]]:
    return [row for one in ranges for batch in read(options, one) for row in batch.to_pylist()]
