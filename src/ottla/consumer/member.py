"""A member of a consumer group, on confluent-kafka: polls, commits, pauses, and reports its partitions.

For one thread, which also runs the callbacks.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from ottla.consumer.errors import FatalClientError
from ottla.consumer.record import Record
from ottla.model.ids import TopicPartition

_logger = logging.getLogger("ottla.consumer")

_PartitionsCallback: TypeAlias = Callable[[list[TopicPartition]], None]

_CLOSE_POLL_S = 0.05
# A retry does not help with these, but librdkafka would retry without end.
_FATAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._FATAL,
}


class Member:
    """Calls `on_revoked` before partitions go to another member, `on_lost` if they have gone: too late to commit."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        on_assigned: _PartitionsCallback,
        on_revoked: _PartitionsCallback,
        on_lost: _PartitionsCallback,
    ) -> None:
        self._group = config["group.id"]
        self._topics = list(topics)
        # What the coordinator has acknowledged: the same offset is not committed twice.
        self._committed: dict[TopicPartition, int] = {}
        self._is_committing = False
        self._is_closing = False
        self._consumer = Consumer({**config, "on_commit": self._on_commit})
        self._consumer.subscribe(
            self._topics,
            on_assign=lambda _, positions: on_assigned(_partitions(positions)),
            on_revoke=lambda _, positions: self._leave(positions, on_revoked),
            on_lost=lambda _, positions: self._leave(positions, on_lost),
        )

    def poll(self, timeout_s: float) -> Record | None:
        """Waits for the next record. Rebalances and the results of commits are processed inside this call."""
        message = self._consumer.poll(timeout_s)
        return None if message is None else self._record_of(message)

    def poll_more(self, count: int) -> list[Record]:
        """Up to `count` records that the client has fetched already."""
        messages = self._consumer.consume(count, 0) if count > 0 else []
        return [record for message in messages if (record := self._record_of(message)) is not None]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Sends a commit unless one is in flight, and does not wait for it. True if all offsets are committed already.

        A later commit makes up for a rejected one. Rejections are common: while a member joins, the broker delays its
        other requests, and then rejects them for their old generation.
        """
        positions = self._uncommitted(offsets)
        if positions and not self._is_committing:
            self._is_committing = True
            try:
                self._consumer.commit(offsets=positions, asynchronous=True)
            except KafkaException as error:
                self._on_commit(error.args[0], positions)
        return not positions

    def commit_and_wait(self, offsets: Mapping[TopicPartition, int]) -> None:
        """For the last chance to commit, before partitions are revoked."""
        positions = [] if self._is_closing else self._uncommitted(offsets)
        if positions:
            try:
                self._record_commits(
                    logging.WARNING, None, self._consumer.commit(offsets=positions, asynchronous=False)
                )
            except KafkaException as error:
                self._record_commits(logging.WARNING, error.args[0], positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        if positions := _positions(partitions):
            self._consumer.pause(positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        if positions := _positions(partitions):
            self._consumer.resume(positions)

    def close(self, committable: Callable[[], Mapping[TopicPartition, int]], timeout_s: float) -> None:
        """Commits and leaves the group. Records that come meanwhile are left to the next owner.

        While the group rebalances, the broker rejects commits: they are repeated until the rebalance is over, or for
        `timeout_s`. Records whose offsets are not committed by then are handled again.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while not self.commit(committable()):
                if time.monotonic() >= deadline:
                    _logger.warning(
                        "group %s: not all offsets were committed within %g s of the end; some records are handled "
                        "again",
                        *(self._group, timeout_s),
                    )
                    break
                self._consumer.poll(_CLOSE_POLL_S)
        finally:
            self._is_closing = True
            self._consumer.close()

    def _leave(self, positions: list[Position], callback: _PartitionsCallback) -> None:
        partitions = _partitions(positions)
        callback(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    def _record_of(self, message: Message) -> Record | None:
        error = message.error()
        if error is None:
            return Record.from_message(message)
        if error.fatal() or error.code() in _FATAL:
            raise FatalClientError(
                f"A consumer of group {self._group}, topics {', '.join(self._topics)}, cannot continue: {error.str()} "
                f"({error.name()}). Fix the cause and start again; it continues from the committed offsets."
            )
        if error.code() != KafkaError._PARTITION_EOF:
            _logger.warning(
                "consumer of group %s: %s (%s); the client tries again",
                self._group,
                error.str(),
                error.name(),
            )
        return None

    def _uncommitted(self, offsets: Mapping[TopicPartition, int]) -> list[Position]:
        return [
            Position(partition.topic, partition.partition, offset)
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        ]

    def _on_commit(self, error: KafkaError | None, positions: list[Position]) -> None:
        self._is_committing = False
        self._record_commits(logging.INFO, error, positions)

    def _record_commits(self, level: int, error: KafkaError | None, positions: list[Position]) -> None:
        for position in positions:
            rejection = error or position.error
            if rejection is None:
                self._committed[TopicPartition(position.topic, position.partition)] = position.offset
                continue
            _logger.log(
                level,
                "offset %d of %s-%d was not committed for group %s: %s (%s); unless a later commit succeeds, records "
                "before it are handled again",
                *(position.offset, position.topic, position.partition, self._group),
                *(rejection.str(), rejection.name()),
            )


def _partitions(positions: Iterable[Position]) -> list[TopicPartition]:
    return [TopicPartition(position.topic, position.partition) for position in positions]


def _positions(partitions: Iterable[TopicPartition]) -> list[Position]:
    return [Position(partition.topic, partition.partition) for partition in partitions]
