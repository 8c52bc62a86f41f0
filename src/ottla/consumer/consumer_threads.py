"""One consumer per thread: each thread is a member of the group and handles its partitions record by record."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.consumer import settings
from ottla.consumer.dead_letters import DeadLetters
from ottla.consumer.errors import HandlerError
from ottla.consumer.member import Member
from ottla.consumer.record import Handler, Record
from ottla.consumer.retry import Retry
from ottla.model.ids import TopicPartition

_logger = logging.getLogger("ottla.consumer")

# How soon a thread sees that it is to stop.
_POLL_S = 0.1
# How long a thread tries to commit before it ends.
_CLOSE_TIMEOUT_S = 30.0


class ConsumerThreads:
    """Each thread has a consumer of its own, handles one record at a time and commits what it has handled.

    Records of a partition are handled in order. Threads beyond the number of partitions stay idle. A handler has
    `max.poll.interval.ms` for a record, or its partitions go to another member.

    A record that fails is tried again (`retry`), then goes to `dead_letter_topic`; without one, all threads stop and
    `run()` raises. The same happens if a thread fails in any other way.
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
        self._errors: list[BaseException] = []
        backoff_s, limit_s = self._retry.total_s(), settings.max_poll_interval_s(config)
        if backoff_s >= limit_s:
            raise ValueError(
                f"the backoffs of {self._retry.attempts} attempts add up to {backoff_s:.0f} s without a poll: more "
                f"than max.poll.interval.ms allows ({limit_s:.0f} s). Set a shorter backoff, or use ParallelConsumer, "
                f"which polls while records wait."
            )

    def run(self) -> None:
        """Returns after `stop()`, when each thread has handled its record, committed and left the group.

        If a thread fails, the others end in the same way, and the first error is raised.
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
        if self._errors:
            raise self._errors[0]

    def stop(self) -> None:
        """From any thread, a handler or a signal handler; `run()` returns soon after."""
        # No lock: a signal handler may interrupt the very thread that holds it.
        self._is_stopping = True

    def _consume(self, number: int) -> None:
        """Runs in each thread."""
        config = dict(self._config)
        if instance_id := config.get("group.instance.id"):
            # KIP-345: members with the same instance id would fence each other.
            config["group.instance.id"] = f"{instance_id}-{number}"
        try:
            with _Consumer(config, self._topics, self._commit_interval_s) as consumer:
                while not self._is_stopping:
                    record = consumer.poll()
                    if record is not None and self._handle(record):
                        consumer.mark_handled(record)
        except BaseException as error:
            if self._errors:
                _logger.error("another consumer thread failed: %s", error)
            self._errors.append(error)
            self.stop()

    def _handle(self, record: Record) -> bool:
        """Whether the record is handled; False if `stop()` is called between two attempts."""
        attempts = 0
        while True:
            try:
                self._handler(record)
                return True
            except Exception as error:
                attempts += 1
                delay_s = self._retry.delay_s(attempts)
                if delay_s is None:
                    self._on_failed_for_good(record, error, attempts)
                    return True
                _logger.warning("attempt %d at record %s failed: %r", attempts, record, error)
            until = time.monotonic() + delay_s
            while (left_s := until - time.monotonic()) > 0:
                if self._is_stopping:
                    return False
                time.sleep(min(left_s, _POLL_S))

    def _on_failed_for_good(self, record: Record, error: Exception, attempts: int) -> None:
        if self._dead_letters is None:
            raise HandlerError(record, attempts, error) from error
        self._dead_letters.send(record, error, attempts)


class _Consumer:
    """A member that commits the handled offsets: at intervals, when partitions are revoked, and at the end."""

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
        # Also after an error: the records before the one that failed are handled.
        self._member.close(lambda: self._handled, _CLOSE_TIMEOUT_S)

    def poll(self) -> Record | None:
        now = time.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + self._commit_interval_s
            self._member.commit(self._handled)
        return self._member.poll(_POLL_S)

    def mark_handled(self, record: Record) -> None:
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
            thread.join(_POLL_S)
