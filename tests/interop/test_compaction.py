"""Compaction in a real broker, by its cleaner process, with a producer and a consumer of librdkafka."""

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import RunningBroker, run_ottla

from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.log_dir import CLEANER_OFFSETS

TOPIC = TopicPartition("profiles", 0)
KEYS = 200
RECORDS = 12_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}


def write(broker: RunningBroker, first: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC.topic, b"%0200d" % number, b"key-%d" % (number % KEYS), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(broker: RunningBroker) -> list[tuple[int, bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([ClientPartition(TOPIC.topic, 0, 0)])
    found: list[tuple[int, bytes, bytes]] = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append((message.offset() or 0, message.key() or b"", message.value() or b""))
    consumer.close()
    return found


def wait_until_clean(directory: Path, offset: int) -> None:
    deadline = time.monotonic() + 60
    path = str(directory / CLEANER_OFFSETS)
    while read_offset_checkpoint(RealDisk(), path).get(TOPIC, 0) < offset:
        assert time.monotonic() < deadline, "the topic was not cleaned"
        time.sleep(0.05)


def check(broker: RunningBroker, last: int) -> None:
    found = read(broker)
    assert len(found) < RECORDS
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    newest = {key: value for _, key, value in found}
    assert newest == {b"key-%d" % (n % KEYS): b"%0200d" % n for n in range(last - KEYS, last)}


def test_a_compacted_topic_is_cleaned_while_it_serves_and_after_a_restart(tmp_path: Path) -> None:
    with run_ottla(tmp_path / "data", set={"log.cleaner.backoff.ms": "200"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC.topic, 1, 1, config=CONFIG)]).values():
            created.result(30)
        write(broker, 0)
        wait_until_clean(broker.data_dir, RECORDS // 2)
        check(broker, RECORDS)
        broker.kill()  # at any point of a cleaning
        broker.start()
        check(broker, RECORDS)
        write(broker, RECORDS)
        wait_until_clean(broker.data_dir, RECORDS + RECORDS // 2)
        check(broker, 2 * RECORDS)
        broker.stop()
        broker.start()
        check(broker, 2 * RECORDS)
