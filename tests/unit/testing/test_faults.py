"""Faults: real clients meet them, and the broker serves the rest."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing import Kafka
from ottla.testing.fault_dispatch import FaultDispatch
from ottla.testing.faults import ControlledRequest

pytestmark = pytest.mark.slow


def producer_of(kafka: Kafka, **options: Any) -> Any:
    return Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "log_level": 0} | options)


def send(producer: Any, topic: str, value: str, **options: Any) -> KafkaError | None:
    """Returns the error of the record, if any."""
    results: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: results.append(error), **options)
    producer.flush(60)
    (result,) = results
    return result


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in kafka.records(topic)]


def test_a_request_fails_once_and_is_retried(broker: Kafka):
    topic = broker.create_topic()
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    assert send(producer_of(broker), topic, "a") is None
    assert fault.count == 1
    assert values(broker, topic) == [b"a"]


def test_an_error_that_is_not_retriable_reaches_the_program(broker: Kafka):
    topic = broker.create_topic()
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    error = send(producer_of(broker), topic, "a")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert values(broker, topic) == []


def test_one_partition_fails_and_the_others_are_served(broker: Kafka):
    topic = broker.create_topic(partitions=2)
    broker.fail("Produce", "INVALID_RECORD", topic=topic, partition=1, times=None)
    producer = producer_of(broker)
    assert send(producer, topic, "a", partition=0) is None
    error = send(producer, topic, "b", partition=1)
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD
    assert values(broker, topic) == [b"a"]


def test_commits_of_one_partition_fail_and_the_others_are_served(broker: Kafka):
    topic = broker.create_topic(partitions=2)
    broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", topic=topic, partition=0)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "partly"})
    try:
        offsets = [TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6)]
        with pytest.raises(KafkaException, match="INVALID_COMMIT_OFFSET_SIZE"):
            consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()
    assert broker.committed("partly") == {(topic, 1): 6}


def test_fetches_of_one_partition_fail_and_the_others_are_served(broker: Kafka):
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, "a", partition=0)
    broker.produce(topic, "b", partition=1)
    fault = broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=1, times=2)
    assert [record.value for record in broker.wait_for(topic, 2)] == [b"a", b"b"]
    assert fault.count == 2


def test_metadata_fails_for_a_topic(broker: Kafka):
    topic = broker.create_topic()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.list_topics(topic, timeout=60)
    fault = broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=topic)
    error = admin.list_topics(topic, timeout=60).topics[topic].error
    assert error is not None
    assert error.code() == KafkaError.LEADER_NOT_AVAILABLE
    assert fault.count == 1
    assert admin.list_topics(topic, timeout=60).topics[topic].error is None


def test_a_lost_response_makes_no_duplicate_of_an_idempotent_producer(broker: Kafka):
    topic = broker.create_topic()
    fault = broker.drop_response("Produce")
    assert send(producer_of(broker, **{"enable.idempotence": True}), topic, "a") is None
    assert fault.count == 1
    assert values(broker, topic) == [b"a"]


def test_a_lost_response_makes_a_duplicate_of_another_producer(broker: Kafka):
    topic = broker.create_topic()
    broker.drop_response("Produce")
    assert (
        send(producer_of(broker, **{"enable.idempotence": False, "retry.backoff.ms": 10}), topic, "a") is None
    )
    assert values(broker, topic) == [b"a", b"a"]


def test_a_connection_that_closes_is_opened_again(broker: Kafka):
    topic = broker.create_topic()
    fault = broker.disconnect("Produce", times=2)
    assert send(producer_of(broker), topic, "a") is None
    assert fault.count == 2
    assert values(broker, topic) == [b"a"]


def test_a_delayed_request_times_out(broker: Kafka):
    topic = broker.create_topic()
    fault = broker.delay("Produce", 3600, times=None)
    error = send(producer_of(broker, **{"message.timeout.ms": 1000}), topic, "a")
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    assert fault.count >= 1


def test_a_function_sees_requests_and_may_respond(broker: Kafka):
    topic = broker.create_topic()
    seen: list[ControlledRequest] = []

    def control(request: ControlledRequest) -> Any:
        seen.append(request)
        return request.error_response("NOT_LEADER_OR_FOLLOWER") if len(seen) == 1 else None

    broker.control("Produce", control)
    assert send(producer_of(broker, **{"client.id": "billing"}), topic, "a") is None
    assert [request.client_id for request in seen] == ["billing"] * 2
    assert len(seen[0].message.topic_data) == 1
    assert values(broker, topic) == [b"a"]


def test_an_older_broker_is_played(broker: Kafka):
    topic = broker.create_topic()
    seen: list[int] = []
    broker.control("Produce", lambda request: seen.append(request.version))
    broker.max_version("Produce", 7)
    assert send(producer_of(broker), topic, "a") is None
    assert set(seen) == {7}


def test_faults_outlive_a_restart_and_cost_nothing_when_removed(broker: Kafka):
    fault = broker.fail("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=None)
    broker.restart()
    producer = producer_of(broker, **{"transactional.id": "t"})
    with pytest.raises(KafkaException, match="authorization"):
        producer.init_transactions(60)
    broker.remove_fault(fault)
    assert not isinstance(broker._running.broker.server.dispatch, FaultDispatch)
    producer_of(broker, **{"transactional.id": "t"}).init_transactions(60)


def test_wrong_faults_are_rejected(broker: Kafka):
    with pytest.raises(ValueError, match="no API 'Prodooce'"):
        broker.fail("Prodooce", "INVALID_RECORD")
    with pytest.raises(ValueError, match="no error 'NO_SUCH'"):
        broker.fail("Produce", "NO_SUCH")
    with pytest.raises(ValueError, match="times=0"):
        broker.disconnect("Produce", times=0)
    with pytest.raises(ValueError, match="partition=1 needs a topic"):
        broker.fail("Produce", "INVALID_RECORD", partition=1)
    with pytest.raises(ValueError, match="Heartbeat cannot fail for one topic"):
        broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", topic="orders")
    with pytest.raises(ValueError, match="a delay of -1 s"):
        broker.delay("Produce", -1)
    with pytest.raises(ValueError, match="expected v3 to v13"):
        broker.max_version("Produce", 99)
