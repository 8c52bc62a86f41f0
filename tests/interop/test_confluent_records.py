"""Records through librdkafka: they are read as they were sent."""

import time

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Position
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import (
    Deliveries,
    consumer_at,
    create_topic,
    flush,
    produce_values,
    read_records,
    take,
)

pytestmark = pytest.mark.contract

TEN_MEGABYTES = 10_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_as_sent(broker: RunningBroker, topic_name: str, codec: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    values = [f"value {n} {'x' * 200}".encode() for n in range(1_000)]
    produce_values(broker.bootstrap, topic_name, values, compression_type=codec, linger_ms=50)
    records = read_records(broker.bootstrap, topic_name, 1_000, check_crcs=True)
    assert [record.value() for record in records] == values
    assert [record.offset() for record in records] == list(range(1_000))


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_recompresses(
    broker: RunningBroker, topic_name: str, codec: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"compression.type": codec})
    values = [f"value {n} {'x' * 200}".encode() for n in range(500)]
    for sent_as in ("none", "gzip", "lz4"):
        produce_values(broker.bootstrap, topic_name, values, compression_type=sent_as, linger_ms=50)
    records = read_records(broker.bootstrap, topic_name, 1_500, check_crcs=True)
    assert [record.value() for record in records] == values * 3


def test_keys_headers_and_timestamps_come_back_as_sent(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("empty", b""),
        ("none", None),
        ("trace", b"again"),
    ]
    producer.produce(topic_name, b"v", b"k", partition=0, timestamp=1_700_000_000_123, headers=headers)
    flush(producer)
    (record,) = read_records(broker.bootstrap, topic_name, 1)
    assert (record.key(), record.value(), record.headers()) == (b"k", b"v", headers)
    assert record.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)


def test_null_and_empty_keys_and_values_are_distinguished(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None), (b"k", None), (None, b"v")]
    for key, value in pairs:
        producer.produce(topic_name, value, key, partition=0)
    flush(producer)
    records = read_records(broker.bootstrap, topic_name, len(pairs))
    assert [(record.key(), record.value()) for record in records] == pairs


def test_a_record_of_ten_megabytes_is_accepted_if_max_message_bytes_allows_it(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"max.message.bytes": "12000000"})
    value = bytes(range(256)) * (TEN_MEGABYTES // 256)
    produce_values(broker.bootstrap, topic_name, [value, b"next"], message_max_bytes=12_000_000)
    first, second = read_records(broker.bootstrap, topic_name, 2)
    assert first.value() == value
    assert second.value() == b"next"


def test_a_record_larger_than_max_message_bytes_is_rejected(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, config={"max.message.bytes": "10000"})
    with pytest.raises(KafkaException) as refused:
        produce_values(broker.bootstrap, topic_name, [b"x" * 20_000])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_record_without_a_key_is_rejected_by_a_compacted_topic(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as refused:
        produce_values(broker.bootstrap, topic_name, [b"no key"])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


def test_a_record_from_too_far_ahead_in_time_is_rejected(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, config={"message.timestamp.after.max.ms": "3600000"})
    producer, deliveries = Producer({"bootstrap.servers": broker.bootstrap}), Deliveries()
    in_a_day_ms = int(time.time() * 1000) + 86_400_000
    producer.produce(topic_name, b"v", partition=0, timestamp=in_a_day_ms, on_delivery=deliveries)
    flush(producer)
    assert [error.code() for error in deliveries.errors] == [KafkaError.INVALID_TIMESTAMP]


def test_log_append_time_is_set_by_the_broker_and_returned_to_the_producer(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000) - 1_000
    producer, deliveries = Producer({"bootstrap.servers": broker.bootstrap}), Deliveries()
    producer.produce(topic_name, b"v", partition=0, timestamp=1, on_delivery=deliveries)
    flush(producer)
    (record,) = read_records(broker.bootstrap, topic_name, 1)
    kind, at_ms = record.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms < at_ms < before_ms + 60_000
    assert deliveries.delivered[0].timestamp() == (kind, at_ms)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_kind_of_acknowledgement(
    broker: RunningBroker, topic_name: str, acks: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    delivered = produce_values(broker.bootstrap, topic_name, [b"a", b"b", b"c"], acks=acks)
    assert len(delivered) == 3
    assert [record.value() for record in read_records(broker.bootstrap, topic_name, 3)] == [b"a", b"b", b"c"]


def test_an_idempotent_producer_keeps_its_order_over_many_small_batches(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    values = [str(n).encode() for n in range(5_000)]
    delivered = produce_values(
        broker.bootstrap, topic_name, values, enable_idempotence=True, batch_num_messages=7, linger_ms=0
    )
    assert [record.offset() for record in delivered] == list(range(5_000))
    assert [record.value() for record in read_records(broker.bootstrap, topic_name, 5_000)] == values


def test_a_delayed_fetch_completes_when_a_record_is_appended(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    with consumer_at(broker.bootstrap, [Position(topic_name, 0, 0)], fetch_wait_max_ms=10_000) as consumer:
        produce_and_take = []
        for n in range(20):
            began = time.monotonic()
            producer.produce(topic_name, str(n).encode(), partition=0)
            flush(producer)
            (record,) = take(consumer, 1)
            produce_and_take.append(time.monotonic() - began)
            assert record.offset() == n
    # Were the long poll not woken, each record would wait for most of fetch.wait.max.ms.
    assert sorted(produce_and_take)[10] < 1.0


def test_a_topic_is_created_when_a_producer_names_it(broker: RunningBroker, topic_name: str) -> None:
    (delivered,) = produce_values(broker.bootstrap, topic_name, [b"first"])
    assert delivered.offset() == 0
    assert read_records(broker.bootstrap, topic_name, 1)[0].value() == b"first"


def test_two_producers_and_two_consumers_share_a_topic(broker: RunningBroker, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=3)
    producers = [Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5}) for _ in range(2)]
    for n in range(3_000):
        producers[n % 2].produce(topic_name, str(n).encode(), str(n).encode())
    for producer in producers:
        flush(producer)
    for _ in range(2):
        records = read_records(broker.bootstrap, topic_name, 3_000, partitions=(0, 1, 2))
        assert {int(record.value() or b"") for record in records} == set(range(3_000))
