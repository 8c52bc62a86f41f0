"""One consumer with a pool of workers: more can be done at a time than the topics have partitions.

The thread that calls `run()` polls, commits and answers rebalances; a crew of workers calls the handler.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.workers import settings
from ottla.workers.backlog import Backlog, Order
from ottla.workers.crew import Crew
from ottla.workers.dead_letters import DeadLetters
from ottla.workers.member import Member
from ottla.workers.record import Handler
from ottla.workers.retry import Retry

# How soon the polling thread sees that it is to stop.
POLL_S = 0.1
# A backlog that is full for less than this is waited for. To pause at once would cost more: the client throws away
# what it has fetched ahead.
FULL_WAIT_S = 0.2
# The most that is read in one go: rebalances and commits are seen to in between.
READ_MAX = 1_000


class WorkerPool:
    """Reads `topics` as one member of the group; `workers` threads, or `processes`, handle the records.

    `order` says which records are handled strictly one after the other: those of the same "key" (records without a key
    have no order), of the same "partition", or "none". An offset is committed when it and all before it are done.

    At most `in_flight_max` records are in hand; beyond that partitions are paused, and polling goes on, so handlers may
    take longer than `max.poll.interval.ms`. When partitions are taken away and when the pool stops, handlers have
    `drain_timeout_s` to finish what they have begun; with 0 that is left to the next owner.

    A record that fails is tried again (`retry`), then goes to `dead_letter_topic`; without one, the pool stops and
    `run()` raises. A worker process that dies counts as a failed attempt at its record and is replaced.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        handler: Handler,
        *,
        workers: int,
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
        settings.check_at_least("workers", workers, 1)
        settings.check_at_least("in_flight_max", in_flight_max, 1)
        settings.check_drain_timeout(drain_timeout_s, config)
        self._topics = list(topics)
        self._handler = handler
        self._workers = workers
        self._processes = processes
        self._order = order
        self._in_flight_max = in_flight_max
        self._retry = retry or Retry()
        self._dead_letter_topic = dead_letter_topic
        self._commit_interval_s = commit_interval_s
        self._drain_timeout_s = drain_timeout_s
        self._is_stopping = False

    def run(self) -> None:
        """Returns after `stop()`, when begun records are finished (see `drain_timeout_s`) and committed.

        Raises what made the pool give up; then too, what was finished is committed.
        """
        topic = self._dead_letter_topic
        dead_letters = None if topic is None else DeadLetters(topic, self._config)
        crew = Crew(Backlog(self._order, self._in_flight_max), self._retry, dead_letters)
        try:
            crew.start(self._handler, self._workers, processes=self._processes)
            reader = _Reader(self._config, self._topics, crew, self._drain_timeout_s)
            try:
                self._read(reader, crew)
            finally:
                reader.close()
        finally:
            crew.close(self._drain_timeout_s)
        if crew.failure is not None:
            raise crew.failure

    def stop(self) -> None:
        """From any thread, a handler or a signal handler; `run()` returns soon after."""
        # No lock: a signal handler may interrupt the very thread that holds it.
        self._is_stopping = True

    def _read(self, reader: "_Reader", crew: Crew) -> None:
        commit_at = time.monotonic() + self._commit_interval_s
        while not self._is_stopping and crew.failure is None:
            reader.read()
            if (now := time.monotonic()) >= commit_at:
                reader.commit()
                commit_at = now + self._commit_interval_s


class _Reader:
    """The polling side: hands records to the crew, pauses while it has too many, commits what it has done."""

    def __init__(
        self, config: Mapping[str, Any], topics: Sequence[str], crew: Crew, drain_timeout_s: float
    ) -> None:
        self._crew = crew
        self._drain_timeout_s = drain_timeout_s
        self._member = Member(
            config, topics, on_assigned=crew.assign, on_revoked=self._on_revoked, on_lost=self._on_lost
        )

    def read(self) -> None:
        """Polls once. It does so too while there is no room: a member that does not poll loses its partitions."""
        room = self._crew.wait_for_room(FULL_WAIT_S)
        pause, resume = self._crew.change_pauses()
        self._member.pause(pause)
        self._member.resume(resume)
        first = self._member.poll(POLL_S if room else 0)
        if first is None:
            return
        # Handed over before the next call, in which its partition may be taken away.
        self._crew.add([first])
        self._crew.add(self._member.poll_more(min(room, READ_MAX) - 1))

    def commit(self) -> None:
        self._member.commit(self._committable())

    def close(self) -> None:
        self._crew.drain(self._crew.partitions(), self._drain_timeout_s)
        self._member.close(self._committable, self._drain_timeout_s)

    def _committable(self) -> dict[TopicPartition, int]:
        return self._crew.committable(self._crew.partitions())

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._crew.drain(partitions, self._drain_timeout_s)
        # Those that stay as well, now that the member waits for an answer anyhow.
        self._member.commit_and_wait(self._committable())
        self._on_lost(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        """Gone, perhaps to another member already: nothing can be committed."""
        # A pause outlives the assignment in librdkafka, and would hold if the partition comes back.
        self._member.resume(set(self._crew.paused()) & set(partitions))
        self._crew.forget(partitions)
