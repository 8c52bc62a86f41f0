"""Time that is advanced: whatever a broker does after some time, it does now."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.testing import Kafka
from ottla.testing.helpers import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in kafka.records(topic)]


def test_records_expire(kafka: Kafka):
    topic = kafka.create_topic(config={"retention.ms": 24 * 3600 * 1000})
    kafka.produce(topic, "a")
    kafka.advance(hours=23)
    assert values(kafka, topic) == [b"a"]
    kafka.advance(hours=2)
    assert values(kafka, topic) == []
    kafka.restart()
    kafka.produce(topic, "b")
    kafka.apply_retention(topic)
    assert values(kafka, topic) == []  # for the broker, the client's clock is a day late


def test_compaction_keeps_the_last_value_and_removes_tombstones_later(kafka: Kafka):
    topic = kafka.create_topic(config={"cleanup.policy": "compact"})
    kafka.produce(topic, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    kafka.compact(topic)
    assert [(record.key, record.value) for record in kafka.records(topic)] == [(b"a", b"2"), (b"b", None)]
    kafka.advance(hours=25)
    kafka.compact(topic)
    assert [(record.key, record.value) for record in kafka.records(topic)] == [(b"a", b"2")]


def test_a_transaction_times_out(kafka: Kafka):
    topic = kafka.create_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "a")
    producer.flush(60)
    kafka.advance(hours=1)
    kafka.produce(topic, "b")
    assert [record.value for record in kafka.wait_for(topic, 1)] == [b"b"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_a_member_that_is_away_loses_its_session(kafka: Kafka):
    topic = kafka.create_topic()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "group.instance.id": "i"})
    consumer.subscribe([topic])
    consumer.poll(0.1)
    kafka.wait_until_stable("g", members=1)
    consumer.close()  # a static member stays in its group
    kafka.wait_until_stable("g", members=1)
    kafka.advance(minutes=10)
    with pytest.raises(TimeoutError, match=r"Empty with 0 members|unknown"):
        kafka.wait_until_stable("g", timeout=2)


def test_committed_offsets_expire(kafka: Kafka):
    topic = kafka.create_topic()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    assert kafka.committed("g") == {(topic, 0): 0}
    kafka.advance(days=8)
    assert wait_until(lambda: kafka.committed("g") == {}, 30)


def test_the_broker_itself_serves_on(kafka: Kafka):
    for _ in range(3):
        kafka.advance(days=20)
        kafka.produce("orders", "a")
    assert kafka.bootstrap


def test_wrong_times_and_topics_are_rejected(kafka: Kafka):
    with pytest.raises(ValueError, match="expected a positive duration"):
        kafka.advance(hours=-1)
    with pytest.raises(ValueError, match="there is no topic nothing"):
        kafka.apply_retention("nothing")
    with pytest.raises(ValueError, match=r"is not compacted\. Create it with cleanup\.policy=compact"):
        kafka.compact(kafka.create_topic())
