"""ParallelConsumer with threads and a fake client that the test controls."""

import logging
import threading
import time
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
    wait_until_not_polled,
)

from ottla.consumer import (
    DeadLetterError,
    FatalClientError,
    HandlerError,
    ParallelConsumer,
    Record,
    Retry,
)
from ottla.model.ids import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_RETRY = Retry(attempts=1)


class Gate:
    """A handler whose records wait until the test lets them through."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []
        self._open: dict[int, threading.Event] = {}
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> None:
        self.started.append(record.offset)
        assert self._event(record.offset).wait(20)
        self.ended.append(record.offset)

    def let(self, *offsets: int) -> None:
        for offset in offsets:
            self._event(offset).set()

    def _event(self, offset: int) -> threading.Event:
        with self._lock:
            return self._open.setdefault(offset, threading.Event())


class SlowHandler:
    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []

    def __call__(self, record: Record) -> None:
        self.started.append(record.offset)
        time.sleep(0.01)
        self.ended.append(record.offset)


def parallel(handler: Callable[[Record], object], **options: Any) -> ParallelConsumer:
    options = {"concurrency": 4, "order": "none", "commit_interval_s": 0.01, **options}
    return ParallelConsumer(CONFIG, ["t"], handler, **options)


def test_an_offset_is_committed_when_all_records_before_it_are_handled(consumers: list[FakeConsumer]) -> None:
    gate = Gate()
    with running(parallel(gate)):
        consumer = the_only(consumers)
        consumer.deliver(10, 11, 12)
        wait_until(lambda: len(gate.started) == 3)
        gate.let(11, 12)
        wait_until(lambda: len(gate.ended) == 2)
        polls = consumer.polls
        wait_until(lambda: consumer.polls > polls + 3)
        assert consumer.commits == []
        gate.let(10)
        wait_until(lambda: consumer.last_committed() == {P0: 13})
    assert consumer.is_closed


def test_stop_finishes_and_commits_started_records_and_leaves_the_rest(
    consumers: list[FakeConsumer],
) -> None:
    handler = SlowHandler()
    with running(parallel(handler, concurrency=2, commit_interval_s=60)) as run:
        consumer = the_only(consumers)
        consumer.deliver(*range(500))
        wait_until(lambda: handler.ended)
        run.stop()
    assert sorted(handler.ended) == sorted(handler.started)
    assert len(handler.started) < 500
    assert consumer.last_committed() == {P0: max(handler.started) + 1}
    assert run.error is None


def test_revocation_waits_for_started_records_and_commits_them(
    consumers: list[FakeConsumer],
) -> None:
    gate = Gate()
    with running(parallel(gate, commit_interval_s=60)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        consumer.deliver(7, partition=1)
        wait_until(lambda: len(gate.started) == 3)
        consumer.revoke(0)
        gate.let(0, 1)
        wait_until(lambda: [p.partition for p in consumer.assigned] == [1])
        assert consumer.waited_commits == [{P0: 2}]
        gate.let(7)


def test_revocation_waits_no_longer_than_the_drain_timeout(
    consumers: list[FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    with running(parallel(gate, drain_timeout_s=0.05)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        wait_until(lambda: len(gate.started) == 2)
        gate.let(0)
        wait_until(lambda: len(gate.ended) == 1)
        consumer.revoke(0)
        wait_until(lambda: [p.partition for p in consumer.assigned] == [1])
        assert consumer.last_committed() == {P0: 1}
        gate.let(1)
    assert "records of t-0 are still with their handlers after 0.05 s" in caplog.text


def test_lost_partitions_are_neither_waited_for_nor_committed(consumers: list[FakeConsumer]) -> None:
    gate = Gate()
    with running(parallel(gate, commit_interval_s=60)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        wait_until(lambda: len(gate.started) == 2)
        gate.let(0)
        wait_until(lambda: len(gate.ended) == 1)
        consumer.lose(0, 1)
        wait_until(lambda: consumer.assigned == [])
        gate.let(1)
    assert consumer.commits == consumer.waited_commits == []


def test_a_partition_that_comes_back_begins_with_its_committed_offset(consumers: list[FakeConsumer]) -> None:
    handled: list[int] = []
    with running(parallel(lambda record: handled.append(record.offset))):
        consumer = the_only(consumers)
        consumer.deliver(5, 6)
        wait_until(lambda: consumer.commits == [{P0: 7}])
        consumer.lose(0, 1)
        consumer.assign(0)
        consumer.deliver(5, 6)
        # The same offset is committed again: another member may have committed a different one in between.
        wait_until(lambda: consumer.commits == [{P0: 7}, {P0: 7}])
    assert handled == [5, 6, 5, 6]


def test_polling_goes_on_with_paused_partitions_while_handlers_are_slow(
    consumers: list[FakeConsumer],
) -> None:
    gate = Gate()
    with running(parallel(gate, concurrency=2, in_flight_max=2)):
        consumer = the_only(consumers)
        consumer.deliver(0, 1)
        wait_until(lambda: consumer.paused == {P0, P1})
        polls = consumer.polls
        wait_until(lambda: consumer.polls > polls + 2)
        gate.let(0, 1)
        wait_until(lambda: consumer.paused == set())
        consumer.deliver(2)
        gate.let(2)
        wait_until(lambda: gate.ended[-1:] == [2])


def test_a_paused_partition_is_resumed_before_it_is_revoked(consumers: list[FakeConsumer]) -> None:
    gate = Gate()
    with running(parallel(gate, concurrency=1, in_flight_max=1)):
        consumer = the_only(consumers)
        consumer.deliver(0)
        wait_until(lambda: consumer.paused == {P0, P1})
        gate.let(0)
        consumer.revoke(0)
        wait_until(lambda: [p.partition for p in consumer.assigned] == [1])
        assert P0 not in consumer.paused


def test_a_failed_record_is_tried_again_after_its_backoff_while_others_go_on(
    consumers: list[FakeConsumer],
) -> None:
    attempts: list[tuple[int, float]] = []

    def handle(record: Record) -> None:
        attempts.append((record.offset, time.monotonic()))
        if record.offset == 0 and len([at for offset, at in attempts if offset == 0]) < 3:
            raise OSError("not yet")

    with running(parallel(handle, concurrency=1, retry=Retry(3, backoff_s=0.05))):
        consumer = the_only(consumers)
        consumer.deliver(0, 1, 2)
        wait_until(lambda: consumer.commits[-1:] == [{P0: 3}])
    assert [offset for offset, _ in attempts[:3]] == [0, 1, 2]
    times = [at for offset, at in attempts if offset == 0]
    assert times[1] - times[0] >= 0.05
    assert times[2] - times[1] >= 0.1


def test_a_record_of_the_same_key_waits_for_the_retry_of_the_one_before(
    consumers: list[FakeConsumer],
) -> None:
    handled: list[int] = []

    def handle(record: Record) -> None:
        handled.append(record.offset)
        if handled == [0]:
            raise OSError("not yet")

    with running(parallel(handle, order="key", retry=Retry(2, backoff_s=0.05))):
        consumer = the_only(consumers)
        consumer.deliver(0, 1, key=b"k")
        wait_until(lambda: consumer.commits[-1:] == [{P0: 2}])
    assert handled == [0, 0, 1]


def test_without_a_dead_letter_topic_the_last_failed_attempt_ends_the_consumer(
    consumers: list[FakeConsumer],
) -> None:
    def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no such customer")

    with running(parallel(handle, concurrency=1, retry=Retry(2, backoff_s=0.0))) as run:
        the_only(consumers).deliver(0, 1, 2)
        run.join()
    assert isinstance(run.error, HandlerError)
    assert isinstance(run.error.__cause__, ValueError)
    assert (run.error.record.offset, run.error.attempts) == (1, 2)
    for part in ("failed 2 times on record t-0@1", "ValueError: no such customer", "dead_letter_topic"):
        assert part in str(run.error)
    assert consumers[0].last_committed() == {P0: 1}, "only the records before it are committed"
    assert consumers[0].is_closed


def test_after_an_error_the_consumer_does_not_wait_for_retries(consumers: list[FakeConsumer]) -> None:
    gate = Gate()

    def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no such customer")
        gate(record)
        raise OSError("not yet")

    with running(parallel(handle, retry=Retry(2, backoff_s=0.0), drain_timeout_s=100)) as run:
        the_only(consumers).deliver(0, 1)
        wait_until(lambda: gate.started == [0])
        # The consumer waits for the record that is being handled.
        wait_until_not_polled(consumers[0])
        gate.let(0)
        run.join()
    assert isinstance(run.error, HandlerError)
    assert consumers[0].last_committed() == {}


def test_after_the_last_attempt_the_record_goes_to_the_dead_letter_topic_with_its_origin_and_error(
    consumers: list[FakeConsumer], producers: list[FakeProducer]
) -> None:
    def handle(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no such customer")

    with running(parallel(handle, retry=Retry(2, backoff_s=0.0), dead_letter_topic="t.dead")):
        consumer = the_only(consumers)
        consumer.deliver(0, 1, 2, key=b"k")
        wait_until(lambda: consumer.commits[-1:] == [{P0: 3}])
    ((topic, value, key, headers),) = producers[0].sent
    assert (topic, value, key) == ("t.dead", b"1", b"k")
    assert dict(headers) == {
        "dead-letter.topic": b"t",
        "dead-letter.partition": b"0",
        "dead-letter.offset": b"1",
        "dead-letter.timestamp": b"1001",
        "dead-letter.group": b"g",
        "dead-letter.attempts": b"2",
        "dead-letter.error.type": b"ValueError",
        "dead-letter.error.text": b"no such customer",
    }
    assert producers[0].config["bootstrap.servers"] == "nowhere:1"
    assert "group.id" not in producers[0].config


def test_a_record_that_the_dead_letter_topic_rejects_is_not_committed(
    consumers: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    rejection = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(
        "ottla.consumer.dead_letters.Producer", lambda config: FakeProducer(config, rejection)
    )

    def handle(record: Record) -> None:
        raise ValueError(record.offset)

    with running(parallel(handle, retry=NO_RETRY, dead_letter_topic="t.dead")) as run:
        the_only(consumers).deliver(0)
        run.join()
    assert isinstance(run.error, DeadLetterError)
    for part in ("Record t-0@0", "dead-letter topic t.dead", "authorization", "not committed"):
        assert part in str(run.error)
    assert consumers[0].commits == consumers[0].waited_commits == []


def test_a_handler_that_raises_system_exit_fails_its_record(
    consumers: list[FakeConsumer],
) -> None:
    def handle(_: Record) -> None:
        raise SystemExit(3)

    with running(parallel(handle, concurrency=1, retry=NO_RETRY)) as run:
        the_only(consumers).deliver(0)
        run.join()
    assert isinstance(run.error, HandlerError)
    assert "SystemExit: 3" in str(run.error)


def test_an_offset_is_not_committed_twice(consumers: list[FakeConsumer]) -> None:
    with running(parallel(lambda _: None)):
        consumer = the_only(consumers)
        consumer.deliver(0)
        wait_until(lambda: consumer.acknowledged)
        polls = consumer.polls
        wait_until(lambda: consumer.polls > polls + 2)
        commits = list(consumer.commits)
        wait_until(lambda: consumer.polls > polls + 5)
    assert consumer.commits == commits
    assert consumer.waited_commits == []


def test_an_error_in_the_library_itself_ends_the_consumer(
    consumers: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr("ottla.consumer.in_flight.InFlightRecords.finish", fail)
    with running(parallel(lambda _: None, drain_timeout_s=0.1)) as run:
        the_only(consumers).deliver(0)
        run.join()
    assert isinstance(run.error, RuntimeError)
    assert consumers[0].last_committed() == {}


def test_a_rejected_commit_is_logged_and_repeated(
    consumers: list[FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), running(parallel(lambda _: None)):
        consumer = the_only(consumers)
        consumer.rejects_commits = True
        consumer.deliver(0)
        wait_until(lambda: "offset 1 of t-0 was not committed for group g" in caplog.text)
        consumer.rejects_commits = False
        wait_until(lambda: consumer.commits == [{P0: 1}])


def test_a_stop_during_a_rebalance_commits_when_it_is_over(consumers: list[FakeConsumer]) -> None:
    handled: list[int] = []
    with running(parallel(lambda record: handled.append(record.offset), commit_interval_s=60)) as run:
        consumer = the_only(consumers)
        consumer.rejects_commits = True
        consumer.deliver(0)
        wait_until(lambda: handled)
        rejected = consumer.rejected
        run.thing.stop()
        wait_until(lambda: consumer.rejected > rejected + 2)
        assert not consumer.is_closed
        consumer.rejects_commits = False
        run.join()
    assert consumer.last_committed() == {P0: 1}
    assert consumer.is_closed


def test_a_consumer_that_cannot_commit_still_stops(
    consumers: list[FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []
    with running(parallel(lambda record: handled.append(record.offset), drain_timeout_s=0.2)) as run:
        consumer = the_only(consumers)
        consumer.rejects_commits = True
        consumer.deliver(0)
        wait_until(lambda: handled)
        run.stop()
    assert consumer.is_closed
    assert (
        "not all offsets were committed within 0.2 s of the end; some records are handled again"
        in caplog.text
    )


def test_a_fatal_error_ends_the_consumer(consumers: list[FakeConsumer]) -> None:
    with running(parallel(lambda _: None)) as run:
        the_only(consumers).fail(KafkaError.GROUP_AUTHORIZATION_FAILED)
        run.join()
    assert isinstance(run.error, FatalClientError)
    assert "A consumer of group g, topics t, cannot continue" in str(run.error)
    assert consumers[0].is_closed


def test_a_retriable_error_is_logged_and_reading_goes_on(
    consumers: list[FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []
    with caplog.at_level(logging.WARNING), running(parallel(lambda record: handled.append(record.offset))):
        consumer = the_only(consumers)
        consumer.fail(KafkaError.UNKNOWN_TOPIC_OR_PART)
        consumer.fail(KafkaError._PARTITION_EOF)
        consumer.deliver(0)
        wait_until(lambda: handled == [0])
    assert "UNKNOWN_TOPIC_OR_PART" in caplog.text
    assert "_PARTITION_EOF" not in caplog.text


def test_a_handler_that_never_returns_does_not_keep_the_consumer_from_stopping(
    consumers: list[FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    with running(parallel(gate, drain_timeout_s=0.05)) as run:
        the_only(consumers).deliver(0)
        wait_until(lambda: gate.started == [0])
        run.stop()
        assert "a handler does not return" in caplog.text
        gate.let(0)
    assert consumers[0].waited_commits == []
