"""kill -9 under load, and restart: acknowledged records are there."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import (
    TIMEOUT_S,
    admin_of,
    consumer_at,
    create_topic,
    flush,
    produce_values,
    read_records,
    wait_until,
)

pytestmark = [pytest.mark.contract, pytest.mark.slow]

PARTITIONS = 3
ROUNDS = 4
ACKNOWLEDGED_A_ROUND = 5_000


class Load:
    """A producer in a thread that numbers the records of each partition and knows which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, **config: object) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        # The client survives restarts: it retries soon and does not give up within the test.
        patience = {"message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 200, "linger.ms": 2}
        self._producer = Producer({"bootstrap.servers": bootstrap, **patience, **settings})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.errors: list[KafkaError] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def count(self) -> int:
        return sum(len(numbers) for numbers in self.acknowledged.values())

    def wait_for(self, more: int) -> None:
        wanted = self.count() + more
        wait_until(
            lambda: self.count() >= wanted or bool(self.errors), f"{more} more records are acknowledged"
        )

    def finish(self) -> None:
        """Stops sending, and waits for the acknowledgement of everything sent."""
        self._stop.set()
        self._thread.join()
        flush(self._producer)

    def _run(self) -> None:
        while not self._stop.is_set():
            partition, number = self.sent % PARTITIONS, self.sent // PARTITIONS
            value = f"{number} {'x' * 100}".encode()
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            # About twenty thousand records per second: a batch is in flight at every moment.
            if self.sent % 200 == 0:
                self._producer.poll(0)
                time.sleep(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            partition = message.partition()
            assert partition is not None
            self.acknowledged[partition].append(number_of(message))


def _keep_message(kept: list[Message], error: KafkaError | None, message: Message) -> None:
    kept.append(message)


def number_of(message: Message) -> int:
    return int((message.value() or b"").split()[0])


def crash_under_load(broker: RunningBroker, load: Load) -> None:
    for _ in range(ROUNDS):
        load.wait_for(ACKNOWLEDGED_A_ROUND)
        broker.kill()
        broker.start()
    load.finish()
    if load.errors:
        raise KafkaException(load.errors[0])


def test_with_idempotence_every_record_is_there_in_order_and_once(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, partitions=PARTITIONS)
    with Load(broker.bootstrap, topic_name, enable_idempotence=True) as load:
        crash_under_load(broker, load)
    for partition in range(PARTITIONS):
        acknowledged = load.acknowledged[partition]
        assert acknowledged == list(range(len(acknowledged)))
        records = read_records(broker.bootstrap, topic_name, len(acknowledged), (partition,), check_crcs=True)
        assert [number_of(record) for record in records] == acknowledged
        assert [record.offset() for record in records] == acknowledged
    assert load.count() == load.sent


def test_with_acks_1_and_no_idempotence_every_acknowledged_record_is_there(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, partitions=PARTITIONS)
    with Load(broker.bootstrap, topic_name, acks=1, enable_idempotence=False) as load:
        crash_under_load(broker, load)
    for partition in range(PARTITIONS):
        acknowledged = load.acknowledged[partition]
        # A last record marks the end of the log, as a retry may have written records twice.
        end = Producer({"bootstrap.servers": broker.bootstrap})
        delivered: list[Message] = []
        end.produce(topic_name, b"-1", partition=partition, on_delivery=partial(_keep_message, delivered))
        flush(end)
        last = delivered[0].offset()
        assert last is not None
        records = read_records(broker.bootstrap, topic_name, last + 1, (partition,), check_crcs=True)
        assert set(acknowledged) <= {number_of(record) for record in records}


def test_a_torn_last_batch_is_truncated_and_the_log_continues(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [str(n).encode() for n in range(100)])
    broker.kill()
    (segment,) = (broker.data_dir / f"{topic_name}-0").glob("*.log")
    whole = segment.read_bytes().rstrip(b"\0")
    with segment.open("r+b") as file:
        file.seek(len(whole))
        # The beginning of another batch, as a crash of the machine may leave it.
        file.write(whole[:40])
    broker.start()
    (delivered,) = produce_values(broker.bootstrap, topic_name, [b"after"])
    assert delivered.offset() == 100
    records = read_records(broker.bootstrap, topic_name, 101, check_crcs=True)
    assert [record.value() for record in records] == [*(str(n).encode() for n in range(100)), b"after"]


def test_missing_indexes_are_built_again(own_broker: Callable[..., RunningBroker], topic_name: str) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, config={"segment.bytes": "1048576"})
    values = [str(n).encode() + b"x" * 1_000 for n in range(5_000)]
    produce_values(broker.bootstrap, topic_name, values)
    broker.kill()
    indexes = list((broker.data_dir / f"{topic_name}-0").glob("*index"))
    assert len(indexes) > 4
    for index in indexes:
        index.unlink()
    broker.start()
    assert [record.value() for record in read_records(broker.bootstrap, topic_name, 5_000)] == values


def test_a_clean_stop_and_start_keeps_topics_configs_and_records(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name, partitions=2, config={"retention.ms": "-1"})
    produce_values(broker.bootstrap, topic_name, [b"before"])
    assert broker.stop() == (0 if broker.name == "ottla" else 143)
    broker.start()
    (delivered,) = produce_values(broker.bootstrap, topic_name, [b"after"])
    assert delivered.offset() == 1
    assert [r.value() for r in read_records(broker.bootstrap, topic_name, 2)] == [b"before", b"after"]


def watermarks(broker: RunningBroker, topic: str) -> tuple[int, int]:
    with consumer_at(broker.bootstrap, []) as consumer:
        found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return found


def delete_and_create_again(broker: RunningBroker, topic: str) -> None:
    """Waits until the new topic exists: in Kafka the deletion continues after its response."""
    admin = admin_of(broker.bootstrap)
    admin.delete_topics([topic], request_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)

    def is_created() -> bool:
        try:
            create_topic(broker.bootstrap, topic)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_until(is_created, f"{topic} is created again")


def test_a_topic_that_is_created_again_keeps_records_at_offsets_that_were_deleted_in_the_old_one(
    own_broker: Callable[..., RunningBroker], topic_name: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"old"] * 600)
    admin = admin_of(broker.bootstrap)
    deleted = admin.delete_records([TopicPartition(topic_name, 0, 500)], request_timeout=TIMEOUT_S)
    assert next(iter(deleted.values())).result(TIMEOUT_S).low_watermark == 500
    broker.stop()  # writes every checkpoint
    broker.start()
    assert watermarks(broker, topic_name) == (500, 600)
    delete_and_create_again(broker, topic_name)
    values = [str(n).encode() for n in range(100)]
    produce_values(broker.bootstrap, topic_name, values)
    broker.kill()
    broker.start()
    assert watermarks(broker, topic_name) == (0, 100)
    assert [record.value() for record in read_records(broker.bootstrap, topic_name, 100)] == values
