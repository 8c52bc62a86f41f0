"""ConsumerThreads with fake consumers that the test controls."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.unit.consumer.fake_consumer import (
    CONFIG,
    FakeConsumer,
    FakeProducer,
    running,
    the_only,
    wait_until,
)

from ottla.consumer import ConsumerThreads, FatalClientError, HandlerError, Record, Retry
from ottla.model.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def threads_of(handler: Callable[[Record], object], **options: Any) -> ConsumerThreads:
    return ConsumerThreads(CONFIG, ["t"], handler, **{"threads": 1, "commit_interval_s": 60, **options})


def test_each_thread_has_a_consumer_of_its_own(consumers: list[FakeConsumer]) -> None:
    handled: list[tuple[int, str]] = []

    def handle(record: Record) -> None:
        handled.append((record.offset, threading.current_thread().name))

    with running(threads_of(handle, threads=3)):
        wait_until(lambda: len(consumers) == 3)
        for n, consumer in enumerate(consumers):
            consumer.deliver(n)
        wait_until(lambda: len(handled) == 3)
    assert len({name for _, name in handled}) == 3
    assert all(consumer.is_closed for consumer in consumers)
    assert sorted(offset for c in consumers for offset in c.last_committed().values()) == [1, 2, 3]


def test_each_thread_is_a_static_member_of_its_own(consumers: list[FakeConsumer]) -> None:
    config = CONFIG | {"group.instance.id": "billing"}
    with running(ConsumerThreads(config, ["t"], print, threads=2)):
        wait_until(lambda: len(consumers) == 2)
    assert {consumer.config["group.instance.id"] for consumer in consumers} == {"billing-0", "billing-1"}


def test_handled_offsets_are_committed_at_intervals(consumers: list[FakeConsumer]) -> None:
    with running(threads_of(lambda _: None, commit_interval_s=0.01)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1, 2)
        wait_until(lambda: consumer.commits[-1:] == [{P0: 3}])


def test_handled_offsets_are_committed_before_partitions_are_revoked(consumers: list[FakeConsumer]) -> None:
    with running(threads_of(lambda _: None)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        consumer.deliver(5, partition=1)
        consumer.revoke(0)
        wait_until(lambda: [p.partition for p in consumer.assigned] == [1])
        # Also the partition that stays: the consumer waits for the commit anyway.
        assert consumer.waited_commits == [{P0: 2, P1: 6}]
    assert consumer.commits == []


def test_nothing_is_committed_for_partitions_that_are_lost(consumers: list[FakeConsumer]) -> None:
    with running(threads_of(lambda _: None)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        consumer.lose(0, 1)
        wait_until(lambda: consumer.assigned == [])
    assert consumer.commits == consumer.waited_commits == []


def test_the_error_of_one_thread_stops_the_others_cleanly_and_is_raised(
    consumers: list[FakeConsumer],
) -> None:
    def handle(record: Record) -> None:
        if record.offset == 13:
            raise ValueError("unlucky")

    with running(threads_of(handle, threads=3, retry=Retry(attempts=1))) as run:
        wait_until(lambda: len(consumers) == 3)
        consumers[0].deliver(7)
        consumers[1].deliver(12, 13)
        run.join()
    assert isinstance(run.error, HandlerError)
    assert "record t-0@13, last with ValueError: unlucky" in str(run.error)
    assert all(consumer.is_closed for consumer in consumers)
    # The record before the one that failed is handled; the one that failed comes again.
    assert consumers[1].last_committed() == {P0: 13}


def test_a_fatal_error_of_a_client_is_raised(consumers: list[FakeConsumer]) -> None:
    with running(threads_of(lambda _: None, threads=2)) as run:
        wait_until(lambda: len(consumers) == 2)
        consumers[1].fail(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        run.join()
    assert isinstance(run.error, FatalClientError)


def test_a_failed_record_is_tried_again_then_put_on_the_dead_letter_topic(
    consumers: list[FakeConsumer], producers: list[FakeProducer]
) -> None:
    handled: list[int] = []

    def handle(record: Record) -> None:
        handled.append(record.offset)
        if record.offset == 0:
            raise KeyError("customer")

    retry = Retry(attempts=3, backoff_s=0.01)
    with running(threads_of(handle, retry=retry, dead_letter_topic="t.dead")):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        wait_until(lambda: handled == [0, 0, 0, 1])
    ((topic, _, _, headers),) = producers[0].sent
    assert topic == "t.dead"
    assert dict(headers)["dead-letter.attempts"] == b"3"
    assert consumer.last_committed() == {P0: 2}


def test_stop_does_not_wait_for_a_long_backoff_and_does_not_commit_the_record(
    consumers: list[FakeConsumer],
) -> None:
    handled: list[int] = []

    def handle(record: Record) -> None:
        handled.append(record.offset)
        raise KeyError("customer")

    with running(threads_of(handle, retry=Retry(2, backoff_s=60, backoff_max_s=60))) as run:
        the_only(consumers).deliver(0)
        wait_until(lambda: handled == [0])
    assert run.error is None
    assert consumers[0].last_committed() == {}


def test_backoffs_longer_than_max_poll_interval_are_rejected() -> None:
    with pytest.raises(
        ValueError, match=r"add up to 400 s.*max\.poll\.interval\.ms allows \(300 s\).*ParallelConsumer"
    ):
        threads_of(lambda _: None, retry=Retry(5, backoff_s=100, backoff_max_s=100))
