"""One consumer per thread: as many members of the group as threads, each handling its partitions record by record."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.workers import settings
from ottla.workers.dead_letters import DeadLetters
from ottla.workers.errors import HandlerError
from ottla.workers.member import Member
from ottla.workers.record import Handler, Record
from ottla.workers.retry import Retry

logger = logging.getLogger("ottla.workers")

# How soon a thread sees that it is to stop.
POLL_S = 0.1
# How long a thread that ends tries to commit.
CLOSE_TIMEOUT_S = 30.0


class ConsumerThreads:
    """Each thread has a consumer of its own, handles one record at a time and commits what it has handled.

    Records of a partition are handled in order. More threads than partitions are of no use: some stay idle. A handler
    has `max.poll.interval.ms` for a record, or its partitions are given to another member.

    A record that fails is tried again (`retry`), then goes to `dead_letter_topic`; without one, all threads stop and
    `run()` raises, as it does when a thread fails in any other way.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        handler: Handler,
        *,
        threads: int,
        retry: Retry | None = None,
        dead_letter_topic: str | None = None,
        commit_interval_s: float = 5.0,
    ) -> None:
        self._config = settings.consumer_config(config)
        settings.check_topics(topics, dead_letter_topic)
        settings.check_handler(handler)
        settings.check_at_least("threads", threads, 1)
        self._topics = list(topics)
        self._handler = handler
        self._threads = threads
        self._retry = retry or Retry()
        self._dead_letter_topic = dead_letter_topic
        self._dead_letters: DeadLetters | None = None
        self._commit_interval_s = commit_interval_s
        self._is_stopping = False
        self._failures: list[BaseException] = []
        rest_s, limit_s = self._retry.total_s(), settings.max_poll_interval_s(config)
        if rest_s >= limit_s:
            raise ValueError(
                f"the rests between {self._retry.attempts} attempts add up to {rest_s:.0f} s, in which the consumer "
                f"does not poll: more than max.poll.interval.ms allows ({limit_s:.0f} s). Choose a shorter backoff, or "
                f"WorkerPool, which polls while records wait."
            )

    def run(self) -> None:
        """Returns after `stop()`, when each thread has done its record, committed and left the group.

        Where a thread fails, the others end likewise, and the first failure is raised.
        """
        if self._dead_letter_topic is not None:
            self._dead_letters = DeadLetters(self._dead_letter_topic, self._config)
        threads = [
            threading.Thread(target=self._consume, args=(n,), name=f"consumer-{n}", daemon=True)
            for n in range(self._threads)
        ]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        finally:
            self.stop()
            _join(threads)
        if self._failures:
            raise self._failures[0]

    def stop(self) -> None:
        """From any thread, a handler or a signal handler; `run()` returns soon after."""
        # No lock: a signal handler may interrupt the very thread that holds it.
        self._is_stopping = True

    def _consume(self, number: int) -> None:
        """What one thread does."""
        config = dict(self._config)
        if instance_id := config.get("group.instance.id"):
            # KIP-345: two members with one instance id would fence each other.
            config["group.instance.id"] = f"{instance_id}-{number}"
        try:
            with _Consumer(config, self._topics, self._commit_interval_s) as consumer:
                while not self._is_stopping:
                    record = consumer.poll()
                    if record is not None and self._handle(record):
                        consumer.handled(record)
        except BaseException as error:
            if self._failures:
                logger.error("one more consumer thread failed: %s", error)
            self._failures.append(error)
            self.stop()

    def _handle(self, record: Record) -> bool:
        """Whether the record is done with; it is not where `stop()` comes between two attempts."""
        attempts = 0
        while True:
            try:
                self._handler(record)
                return True
            except Exception as error:
                attempts += 1
                delay_s = self._retry.delay_s(attempts)
                if delay_s is None:
                    self._give_up(record, error, attempts)
                    return True
                logger.warning("attempt %d at record %s failed: %r", attempts, record, error)
            until = time.monotonic() + delay_s
            while (left_s := until - time.monotonic()) > 0:
                if self._is_stopping:
                    return False
                time.sleep(min(left_s, POLL_S))

    def _give_up(self, record: Record, error: Exception, attempts: int) -> None:
        if self._dead_letters is None:
            raise HandlerError(record, attempts, error) from error
        self._dead_letters.send(record, error, attempts)


class _Consumer:
    """A member that commits what was handled: at intervals, when partitions go, and at the end."""

    def __init__(self, config: Mapping[str, Any], topics: Sequence[str], commit_interval_s: float) -> None:
        self._commit_interval_s = commit_interval_s
        self._commit_at = time.monotonic() + commit_interval_s
        self._handled: dict[TopicPartition, int] = {}
        self._member = Member(
            config, topics, on_assigned=self._forget, on_revoked=self._on_revoked, on_lost=self._forget
        )

    def __enter__(self) -> "_Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        # Also after a failure: what came before the record that failed is handled.
        self._member.close(lambda: self._handled, CLOSE_TIMEOUT_S)

    def poll(self) -> Record | None:
        now = time.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + self._commit_interval_s
            self._member.commit(self._handled)
        return self._member.poll(POLL_S)

    def handled(self, record: Record) -> None:
        self._handled[record.topic_partition] = record.offset + 1

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._member.commit_and_wait(self._handled)
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._handled.pop(partition, None)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        # With a timeout, so that the main thread gets to run its signal handlers.
        while thread.is_alive():
            thread.join(POLL_S)
