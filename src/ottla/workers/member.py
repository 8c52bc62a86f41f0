"""A member of a consumer group, on confluent-kafka: reads records, commits what it is told, names its partitions.

Everything here is called by one thread, callbacks too.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from ottla.model.ids import TopicPartition
from ottla.workers.errors import ConsumerError
from ottla.workers.record import Record

logger = logging.getLogger("ottla.workers")

PartitionsCallback: TypeAlias = Callable[[list[TopicPartition]], None]

CLOSE_POLL_S = 0.05
# Trying again does not help with these; librdkafka would do so without end.
_FINAL = {
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
    """`on_revoked` is called before partitions go, `on_lost` when they are gone already (no commit can succeed)."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        on_assigned: PartitionsCallback,
        on_revoked: PartitionsCallback,
        on_lost: PartitionsCallback,
    ) -> None:
        self._group = config["group.id"]
        self._topics = list(topics)
        # What the coordinator has acknowledged, so that nothing is committed twice.
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
        """The next record, waiting for it. Partitions come and go, and commits are answered, inside this call."""
        message = self._consumer.poll(timeout_s)
        return None if message is None else self._record_of(message)

    def poll_more(self, count: int) -> list[Record]:
        """Up to `count` records that the client holds already."""
        messages = self._consumer.consume(count, 0) if count > 0 else []
        return [record for message in messages if (record := self._record_of(message)) is not None]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Without waiting for the answer, one commit at a time. True where all is committed already.

        A refused commit is made up for by the next. It is no rare thing: while a member joins, the broker keeps its
        other requests waiting, and finds them to be of an old generation afterwards.
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
        """The last chance to commit, before partitions go."""
        positions = [] if self._is_closing else self._uncommitted(offsets)
        if positions:
            try:
                self._note_commits(
                    logging.WARNING, None, self._consumer.commit(offsets=positions, asynchronous=False)
                )
            except KafkaException as error:
                self._note_commits(logging.WARNING, error.args[0], positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        if positions := _positions(partitions):
            self._consumer.pause(positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        if positions := _positions(partitions):
            self._consumer.resume(positions)

    def close(self, committable: Callable[[], Mapping[TopicPartition, int]], timeout_s: float) -> None:
        """Commits, and leaves the group. Records that come in between are left to the next owner.

        While the group rebalances, a commit is refused: then it is repeated until the rebalance is over. What is still
        not committed after `timeout_s` is handled again.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while not self.commit(committable()):
                if time.monotonic() >= deadline:
                    logger.warning(
                        "group %s: not all offsets were committed within %g s of the end; some records are handled "
                        "again",
                        *(self._group, timeout_s),
                    )
                    break
                self._consumer.poll(CLOSE_POLL_S)
        finally:
            self._is_closing = True
            self._consumer.close()

    def _leave(self, positions: list[Position], callback: PartitionsCallback) -> None:
        partitions = _partitions(positions)
        callback(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    def _record_of(self, message: Message) -> Record | None:
        error = message.error()
        if error is None:
            return Record.from_message(message)
        if error.fatal() or error.code() in _FINAL:
            raise ConsumerError(
                f"A consumer of group {self._group}, topics {', '.join(self._topics)}, cannot go on: {error.str()} "
                f"({error.name()}). Correct the cause and start again; it goes on from the committed offsets."
            )
        if error.code() != KafkaError._PARTITION_EOF:
            logger.warning(
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
        self._note_commits(logging.INFO, error, positions)

    def _note_commits(self, level: int, error: KafkaError | None, positions: list[Position]) -> None:
        for position in positions:
            refusal = error or position.error
            if refusal is None:
                self._committed[TopicPartition(position.topic, position.partition)] = position.offset
                continue
            logger.log(
                level,
                "offset %d of %s-%d was not committed for group %s: %s (%s); unless a later commit succeeds, records "
                "before it are handled again",
                *(position.offset, position.topic, position.partition, self._group),
                *(refusal.str(), refusal.name()),
            )


def _partitions(positions: Iterable[Position]) -> list[TopicPartition]:
    return [TopicPartition(position.topic, position.partition) for position in positions]


def _positions(partitions: Iterable[TopicPartition]) -> list[Position]:
    return [Position(partition.topic, partition.partition) for partition in partitions]
