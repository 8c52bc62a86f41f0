"""Fakes of confluent-kafka's Consumer and Producer that a test controls."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from ottla.model.ids import TopicPartition

CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


class FakeConsumer:
    """What is put into `events` comes out of `poll`: messages are returned, functions are called."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.events: queue.Queue[Message | Callable[[], None]] = queue.Queue()
        self.assigned: list[Position] = []
        self.paused: set[TopicPartition] = set()
        self.commits: list[dict[TopicPartition, int]] = []
        self.waited_commits: list[dict[TopicPartition, int]] = []
        self.acknowledged: list[Position] = []
        self.rejects_commits = False
        self.rejected = 0
        self.polls = 0
        self.is_closed = False

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.topics, self.on_assign, self.on_revoke, self.on_lost = topics, on_assign, on_revoke, on_lost

    def poll(self, timeout: float) -> Message | None:
        self.polls += 1
        try:
            event = self.events.get(timeout=timeout) if timeout else self.events.get_nowait()
        except queue.Empty:
            return None
        if isinstance(event, Message):
            return event
        event()
        return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [message for _ in range(count) if (message := self.poll(timeout)) is not None]

    def commit(self, offsets: list[Position], asynchronous: bool) -> list[Position] | None:
        if self.rejects_commits:
            self.rejected += 1
            raise KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
        committed = {TopicPartition(p.topic, p.partition): p.offset for p in offsets}
        if asynchronous:
            self.commits.append(committed)
            self.events.put(lambda: self._acknowledge(offsets))
            return None
        self.waited_commits.append(committed)
        return offsets

    def pause(self, positions: list[Position]) -> None:
        self.paused |= {TopicPartition(p.topic, p.partition) for p in positions}

    def resume(self, positions: list[Position]) -> None:
        self.paused -= {TopicPartition(p.topic, p.partition) for p in positions}

    def close(self) -> None:
        if self.assigned:
            self._revoke(self.on_revoke, self.assigned)
        self.is_closed = True

    # For the test:

    def assign(self, *partitions: int, topic: str = "t") -> None:
        positions = [Position(topic, partition) for partition in partitions]

        def happen() -> None:
            self.on_assign(self, positions)
            self.assigned += positions

        self.events.put(happen)

    def revoke(self, *partitions: int) -> None:
        self.events.put(lambda: self._revoke(self.on_revoke, [Position("t", p) for p in partitions]))

    def lose(self, *partitions: int) -> None:
        self.events.put(lambda: self._revoke(self.on_lost, [Position("t", p) for p in partitions]))

    def deliver(self, *offsets: int, partition: int = 0, key: bytes | None = None) -> None:
        for offset in offsets:
            value = str(offset).encode()
            self.events.put(Message("t", partition, offset, key, value, timestamp=(1, 1_000 + offset)))

    def fail(self, code: int) -> None:
        self.events.put(Message(error=KafkaError(code)))

    def last_committed(self) -> dict[TopicPartition, int]:
        """Where the group would begin. Asynchronous commits come before those at the end."""
        return {
            p: offset
            for committed in (*self.commits, *self.waited_commits)
            for p, offset in committed.items()
        }

    def _acknowledge(self, offsets: list[Position]) -> None:
        self.config["on_commit"](None, offsets)
        self.acknowledged += offsets

    def _revoke(self, callback: Any, positions: list[Position]) -> None:
        revoked = {(p.topic, p.partition) for p in positions}
        callback(self, positions)
        self.assigned = [p for p in self.assigned if (p.topic, p.partition) not in revoked]


class FakeProducer:
    """Remembers the records that were sent; `error` is the outcome of each."""

    def __init__(self, config: dict[str, Any], error: KafkaError | None = None) -> None:
        self.config = config
        self.error = error
        self.sent: list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []
        self._outcomes: list[Callable[[], None]] = []

    def produce(self, topic: str, value: Any, key: Any, *, headers: Any, on_delivery: Any) -> None:
        self.sent.append((topic, value, key, headers))
        self._outcomes.append(lambda: on_delivery(self.error, None))

    def poll(self, _: float) -> None:
        while self._outcomes:
            self._outcomes.pop()()


class Runnable:
    """A consumer that runs in a thread, so that the test can watch it."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.thing.run()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive(), "run() did not return within 20 s"

    def stop(self) -> None:
        self.thing.stop()
        self.join()


@contextmanager
def running(thing: Any) -> Iterator[Runnable]:
    run = Runnable(thing)
    run.thread.start()
    try:
        yield run
    finally:
        run.stop()


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s in vain"
        time.sleep(0.002)


def wait_until_not_polled(consumer: FakeConsumer) -> None:
    """Returns when the consumer has stopped polling: while it reads, it polls many times in this time."""
    last = -1
    while consumer.polls != last:
        last = consumer.polls
        time.sleep(0.6)


def the_only(made: list[FakeConsumer]) -> FakeConsumer:
    wait_until(lambda: made)
    return made[0]
