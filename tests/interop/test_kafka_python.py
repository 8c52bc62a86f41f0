"""kafka-python, a client in pure Python: producer, consumer and admin client."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import create_topic, wait_until

pytestmark = pytest.mark.contract

TIMEOUT_S = 30
TIMEOUT_MS = 30_000


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def send_all(broker: RunningBroker, topic: str, values: list[bytes | None], **config: object) -> list[int]:
    """Sends to partition 0 and returns the offsets that the broker assigned."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    try:
        sent = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(TIMEOUT_S)
        return [future.get(TIMEOUT_S).offset for future in sent]
    finally:
        producer.close()


def read_all(broker: RunningBroker, topic: str, count: int, **config: object) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **config)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        records: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(records) < count and time.monotonic() < deadline:
            for polled in consumer.poll(timeout_ms=200).values():
                records.extend(polled)
        return records
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_what_it_wrote_in_every_codec(
    broker: RunningBroker, topic_name: str, codec: str | None
) -> None:
    if codec in ("snappy", "lz4", "zstd"):
        pytest.importorskip({"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"}[codec])
    create_topic(broker.bootstrap, topic_name)
    values: list[bytes | None] = [f"value {n} {'x' * 100}".encode() for n in range(300)]
    offsets = send_all(broker, topic_name, values, compression_type=codec, linger_ms=20)
    assert offsets == list(range(300))
    records = read_all(broker, topic_name, 300, check_crcs=True)
    assert [record.value for record in records] == values


def test_kafka_python_keeps_keys_headers_timestamps_and_nulls(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    headers = [("trace", b"\x00\xff"), ("empty", b"")]
    producer.send(topic_name, b"v", key=b"k", headers=headers, partition=0, timestamp_ms=1_700_000_000_123)
    producer.send(topic_name, None, key=b"tombstone", partition=0)
    producer.send(topic_name, b"", partition=0)
    producer.close(timeout=TIMEOUT_S)
    first, second, third = read_all(broker, topic_name, 3)
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
    assert first.timestamp == 1_700_000_000_123
    assert (second.key, second.value) == (b"tombstone", None)
    assert (third.key, third.value) == (None, b"")


def test_kafka_pythons_idempotent_producer_is_served(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    values: list[bytes | None] = [str(n).encode() for n in range(500)]
    offsets = send_all(broker, topic_name, values, enable_idempotence=True, acks="all")
    assert offsets == list(range(500))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_kafka_python_sends_with_every_kind_of_acknowledgement(
    broker: RunningBroker, topic_name: str, acks: int | str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    send_all(broker, topic_name, [b"a", b"b"], acks=acks, enable_idempotence=False)
    assert [record.value for record in read_all(broker, topic_name, 2)] == [b"a", b"b"]


def test_kafka_python_seeks_to_a_time_and_to_both_ends(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20)
    for n in range(100):
        producer.send(topic_name, str(n).encode(), partition=0, timestamp_ms=1_000 + 10 * n)
    producer.close(timeout=TIMEOUT_S)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    partition = TopicPartition(topic_name, 0)
    consumer.assign([partition])
    found = consumer.offsets_for_times({partition: 1_495})[partition]
    assert (found.offset, found.timestamp) == (50, 1_500)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.seek(partition, 50)
    polled: list[Any] = []

    def has_polled() -> bool:
        polled.extend(consumer.poll(200).get(partition, []))
        return bool(polled)

    wait_until(has_polled, "a record comes")
    assert polled[0].value == b"50"
    consumer.close()


def test_kafka_python_administers_topics(
    broker: RunningBroker, admin: KafkaAdminClient, topic_name: str
) -> None:
    admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic_name, num_partitions=2, replication_factor=1)])
    wait_until(lambda: topic_name in admin.list_topics(), "the topic is listed")
    admin.create_partitions({topic_name: NewPartitions(total_count=4)})
    wait_until(
        lambda: len(admin.describe_topics([topic_name])[0]["partitions"]) == 4,
        "the topic has four partitions",
    )
    admin.delete_topics([topic_name])
    wait_until(lambda: topic_name not in admin.list_topics(), "the topic is gone")


def test_kafka_python_describes_and_alters_configs(
    broker: RunningBroker, admin: KafkaAdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic_name, configs={"retention.ms": "60000"})]
    )

    def described() -> str:
        return str(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)]))

    wait_until(lambda: "60000" in described(), "retention.ms is 60000")
    assert "DYNAMIC_TOPIC_CONFIG" in described()
    admin.reset_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic_name, configs={"retention.ms": None})]
    )
    wait_until(lambda: "60000" not in described(), "retention.ms is the default again")


def test_kafka_python_describes_the_cluster_and_its_log_dirs(
    broker: RunningBroker, admin: KafkaAdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    send_all(broker, topic_name, [b"x" * 1_000])
    assert len(admin.describe_cluster()["brokers"]) == 1
    assert topic_name in str(admin.describe_log_dirs())


def test_kafka_python_deletes_records(
    broker: RunningBroker, admin: KafkaAdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    send_all(broker, topic_name, [b"a", b"b", b"c"])
    partition = TopicPartition(topic_name, 0)
    admin.delete_records({partition: 2})
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    assert consumer.beginning_offsets([partition]) == {partition: 2}
    consumer.close()


def test_kafka_python_gets_the_error_of_a_record_too_large(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, config={"max.message.bytes": "1000"})
    with pytest.raises(KafkaError, match=r"(?i)large"):
        send_all(broker, topic_name, [b"x" * 5_000])
