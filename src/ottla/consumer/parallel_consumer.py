"""One consumer whose records are handled by many threads or processes: more than the topics have partitions.

The thread that calls `run()` polls, commits and takes part in rebalances; a `HandlerPool` calls the handler.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.consumer import settings
from ottla.consumer.dead_letters import DeadLetters
from ottla.consumer.handler_pool import HandlerPool
from ottla.consumer.in_flight import InFlightRecords, Order
from ottla.consumer.member import Member
from ottla.consumer.record import Handler
from ottla.consumer.retry import Retry
from ottla.model.ids import TopicPartition

# How soon the polling thread sees that it is to stop.
_POLL_S = 0.1
# How long to wait for room before partitions are paused: a pause makes librdkafka drop what it has prefetched.
_ROOM_TIMEOUT_S = 0.2
# The most records that are read at once: rebalances and commits are handled in between.
_READ_RECORDS_MAX = 1_000


class ParallelConsumer:
    """Reads `topics` as one member of the group, and handles up to `concurrency` records at a time.

    Each of them is handled in a thread, or in a process if `processes` is true.

    `order` says which records are handled one after the other: those of the same "key" (records without a key have no
    order), of the same "partition", or "none". An offset is committed when its record and all before it are handled.

    At most `in_flight_max` records are in flight. At that limit partitions are paused and polling goes on, so handlers
    may take longer than `max.poll.interval.ms`. When partitions are revoked and when the consumer stops, handlers have
    `drain_timeout_s` to finish the records that they have; with 0 those are left to the next owner.

    A record that fails is tried again (`retry`), then goes to `dead_letter_topic`; without one, the consumer stops and
    `run()` raises. A handler process that dies counts as a failed attempt at its record and is replaced.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        handler: Handler,
        *,
        concurrency: int,
        processes: bool = False,
        order: Order = "key",
        in_flight_max: int = 1_000,
        retry: Retry | None = None,
        dead_letter_topic: str | None = None,
        commit_interval_s: float = 5.0,
        drain_timeout_s: float = 30.0,
    ) -> None:
        self._config = settings.consumer_config(config)
        settings.check_topics(topics, dead_letter_topic)
        settings.check_handler(handler, to_be_pickled=processes)
        settings.check_order(order)
        settings.check_at_least("concurrency", concurrency, 1)
        settings.check_at_least("in_flight_max", in_flight_max, 1)
        settings.check_drain_timeout(drain_timeout_s, config)
        self._topics = list(topics)
        self._handler = handler
        self._concurrency = concurrency
        self._processes = processes
        self._order = order
        self._in_flight_max = in_flight_max
        self._retry = retry or Retry()
        self._dead_letter_topic = dead_letter_topic
        self._commit_interval_s = commit_interval_s
        self._drain_timeout_s = drain_timeout_s
        self._is_stopping = False

    def run(self) -> None:
        """Returns after `stop()`, when handlers have finished (see `drain_timeout_s`) and offsets are committed.

        Raises the error that made the consumer give up; then too, what was finished is committed.
        """
        topic = self._dead_letter_topic
        dead_letters = None if topic is None else DeadLetters(topic, self._config)
        pool = HandlerPool(InFlightRecords(self._order, self._in_flight_max), self._retry, dead_letters)
        try:
            pool.start(self._handler, self._concurrency, processes=self._processes)
            reader = _Reader(self._config, self._topics, pool, self._drain_timeout_s)
            try:
                self._read(reader, pool)
            finally:
                reader.close()
        finally:
            pool.close(self._drain_timeout_s)
        if pool.error is not None:
            raise pool.error

    def stop(self) -> None:
        """From any thread, a handler or a signal handler; `run()` returns soon after."""
        # No lock: a signal handler may interrupt the very thread that holds it.
        self._is_stopping = True

    def _read(self, reader: "_Reader", pool: HandlerPool) -> None:
        commit_at = time.monotonic() + self._commit_interval_s
        while not self._is_stopping and pool.error is None:
            reader.read()
            if (now := time.monotonic()) >= commit_at:
                reader.commit()
                commit_at = now + self._commit_interval_s


class _Reader:
    """The polling side: passes records to the pool, pauses partitions while it has too many, commits offsets."""

    def __init__(
        self, config: Mapping[str, Any], topics: Sequence[str], pool: HandlerPool, drain_timeout_s: float
    ) -> None:
        self._pool = pool
        self._drain_timeout_s = drain_timeout_s
        self._member = Member(
            config, topics, on_assigned=pool.assign, on_revoked=self._on_revoked, on_lost=self._on_lost
        )

    def read(self) -> None:
        """Polls once, also while there is no room: a member that does not poll loses its partitions."""
        room = self._pool.wait_for_room(_ROOM_TIMEOUT_S)
        pause, resume = self._pool.change_pauses()
        self._member.pause(pause)
        self._member.resume(resume)
        first = self._member.poll(_POLL_S if room else 0)
        if first is None:
            return
        # Added before the next call to the client, in which its partition may be revoked.
        self._pool.add([first])
        self._pool.add(self._member.poll_more(min(room, _READ_RECORDS_MAX) - 1))

    def commit(self) -> None:
        self._member.commit(self._committable())

    def close(self) -> None:
        self._pool.drain(self._pool.partitions(), self._drain_timeout_s)
        self._member.close(self._committable, self._drain_timeout_s)

    def _committable(self) -> dict[TopicPartition, int]:
        return self._pool.committable(self._pool.partitions())

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._pool.drain(partitions, self._drain_timeout_s)
        # All partitions, also those that stay: the member waits for this commit anyway.
        self._member.commit_and_wait(self._committable())
        self._on_lost(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        """Another member may have the partitions already: nothing can be committed."""
        # In librdkafka a pause outlives the assignment, and would still hold if the partition came back.
        self._member.resume(set(self._pool.paused()) & set(partitions))
        self._pool.unassign(partitions)
