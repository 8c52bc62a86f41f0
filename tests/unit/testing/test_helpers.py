"""The helpers for topics and groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.admin.cluster import ClusterError
from ottla.testing import Kafka

pytestmark = pytest.mark.slow


@contextmanager
def consumer_of(kafka: Kafka, group: str, topic: str) -> Iterator[Any]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_group_is_watched_from_its_first_member_to_its_last_record(broker: Kafka):
    topic = broker.create_topic()
    broker.produce(topic, "a", "b", "c")
    assert broker.committed("billing") == {}
    with consumer_of(broker, "billing", topic) as consumer:
        messages = consumer.consume(2, 60)
        assert len(messages) == 2
        broker.wait_until_stable("billing", members=1)
        assert broker.lag("billing") == 3  # nothing is committed
        consumer.commit(message=messages[-1], asynchronous=False)
    broker.wait_until_committed("billing", {(topic, 0): 2})
    assert broker.committed("billing") == {(topic, 0): 2}
    assert broker.lag("billing") == 1


def test_waiting_ends_with_what_was_found(broker: Kafka):
    topic = broker.create_topic()
    broker.produce(topic, "a")
    with pytest.raises(TimeoutError, match=r"has \d records after 0\.5 s, not 2"):
        broker.wait_for(topic, 2, timeout=0.5)
    with pytest.raises(TimeoutError, match="group nobody is unknown after 0 s, not Stable with 2 members"):
        broker.wait_until_stable("nobody", members=2, timeout=0)
    with pytest.raises(TimeoutError, match=r"group nobody has committed \{\} after 0 s"):
        broker.wait_until_committed("nobody", {(topic, 0): 1}, timeout=0)
    with pytest.raises(ClusterError, match="no-such-topic"):
        broker.records("no-such-topic")


def test_a_topic_that_is_created_later_is_waited_for(broker: Kafka):
    program = Timer(0.5, broker.produce, ("fresh", "a"))
    program.start()
    assert [record.value for record in broker.wait_for("fresh", 1)] == [b"a"]
    program.join()


def test_errors_of_the_cluster_are_in_the_timeout(broker: Kafka):
    with pytest.raises(TimeoutError, match=r"has 0 records after 0\.5 s, not 1\. .*no-such-topic: no such"):
        broker.wait_for("no-such-topic", 1, timeout=0.5)


def test_errors_of_the_coordinator_are_retried(broker: Kafka, monkeypatch: pytest.MonkeyPatch):
    topic = broker.create_topic()
    answers: list[Any] = [ClusterError("not the coordinator"), {(topic, 0): 1}]

    def committed(group: str) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    monkeypatch.setattr(broker, "committed", committed)
    broker.wait_until_committed("billing", {(topic, 0): 1})
    answers[:] = [ClusterError("not the coordinator")]
    with pytest.raises(TimeoutError, match=r"The last error: not the coordinator"):
        broker.wait_until_committed("billing", {(topic, 0): 1}, timeout=0)


def test_records_of_open_transactions_are_left_out(broker: Kafka):
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "a")
    producer.flush(60)
    assert broker.records(topic) == []
    assert [record.value for record in broker.records(topic, committed_only=False)] == [b"a"]
    producer.commit_transaction(60)
    assert [record.value for record in broker.wait_for(topic, 1)] == [b"a"]
