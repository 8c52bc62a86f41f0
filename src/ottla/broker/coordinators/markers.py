"""Writes the outcome of transactions into their partitions, as often as it takes.

As in Kafka, a commit is answered when its outcome is in the coordinator's log, and the markers follow. All partitions
that are led here get theirs in one go, before the coordinator decides anything else: a producer that hears of its
commit finds the transaction complete, and begins the next one without being turned away.
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS
from ottla.broker.coordinators.shard import CoordinatorShard, ShardState
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.housekeeping import flush
from ottla.core.partition.leader import TransactionMarker
from ottla.core.purgatory import Operation
from ottla.core.transactions.commands import MarkersWritten, WriteMarkers
from ottla.core.transactions.shard import TransactionShard
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Broker

logger = logging.getLogger("ottla.transactions")

_BACKOFF_MS = 20
_BACKOFF_MAX_MS = 1000
_COMMIT_CHECK_MS = 30_000


class WrittenMarker(NamedTuple):
    """`end_offset`: the marker is committed when the high watermark is there."""

    partition: TopicPartition
    hosted: HostedPartition
    end_offset: int

    @property
    def is_committed(self) -> bool:
        return self.hosted.leader.high_watermark >= self.end_offset

    @property
    def is_lost(self) -> bool:
        return self.hosted.failure is not None or self.hosted.is_closed


def append_marker(broker: "Broker", partition: TopicPartition, marker: TransactionMarker) -> WrittenMarker:
    """Raises KafkaError, and then nothing has changed."""
    hosted = broker.partitions.find(partition.topic, None, partition.partition)
    if partition.topic == CONSUMER_OFFSETS:
        # Its offsets become visible, or go, with the marker: the machine must see it.
        shard = broker.groups.shards.shard_at(partition.partition)
        if shard is None:
            raise KafkaError(ErrorCode.not_coordinator, f"the groups of {partition} are not served here")
        plan = shard.append_marker(marker)
    else:
        plan = hosted.append_marker(marker, broker.env.clock.now_ms())
    return WrittenMarker(partition, hosted, plan.last_offset + 1)


def flush_markers(broker: "Broker", written: Iterable[WrittenMarker]) -> None:
    """Starts the flush of partitions where `flush.messages` asks for one before the marker is committed."""
    for each in written:
        if each.hosted.needs_flush:
            broker.spawn(flush(broker.env, each.hosted))


class MarkerWriter:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def write(self, shard: CoordinatorShard[TransactionShard], effect: WriteMarkers) -> None:
        Outcome(self._broker, shard, effect).write(effect.partitions)


class Outcome:
    """One transaction's outcome on its way. Where the shard is given up it ends: the next one writes them again."""

    def __init__(
        self, broker: "Broker", shard: CoordinatorShard[TransactionShard], effect: WriteMarkers
    ) -> None:
        self._broker = broker
        self._shard = shard
        self._machine = shard.machine
        self._effect = effect
        self._backoff_ms = _BACKOFF_MS

    def write(self, partitions: Iterable[TopicPartition]) -> None:
        if self._shard.state is not ShardState.ACTIVE or self._shard.machine is not self._machine:
            return
        done: list[TopicPartition] = []
        written: list[WrittenMarker] = []
        failed: list[TopicPartition] = []
        marker = self._marker()
        for partition in partitions:
            try:
                written.append(append_marker(self._broker, partition, marker))
            except KafkaError as error:
                if error.code is ErrorCode.transaction_coordinator_fenced:
                    logger.error(
                        "the transaction of %r is ended by another: %s", self._effect.transactional_id, error
                    )
                    return
                if self._is_settled(partition, error):
                    done.append(partition)
                else:
                    self._note_failure(partition, error)
                    failed.append(partition)
        flush_markers(self._broker, written)
        self.settle(done, written, failed)

    def settle(
        self, done: list[TopicPartition], written: list[WrittenMarker], failed: list[TopicPartition]
    ) -> None:
        """Tells the shard what is done, and waits for what is not committed yet, or has to be tried again."""
        room = self._broker.waiting_room
        uncommitted = []
        for each in written:
            if each.is_committed:
                done.append(each.partition)
            else:
                uncommitted.append(each)
        if uncommitted:
            keys = [each.hosted.topic_partition for each in uncommitted]
            room.wait(AwaitMarkers(self, uncommitted), keys, _COMMIT_CHECK_MS)
        if failed:
            room.wait(RetryLater(self, failed), (), self._backoff_ms)
            self._backoff_ms = min(2 * self._backoff_ms, _BACKOFF_MAX_MS)
        if done:
            self._shard.submit(MarkersWritten(markers=self._effect, partitions=tuple(done)))

    def fail(self, error: Exception) -> None:
        """A step failed unexpectedly: the shard is loaded again, and its log says which markers are missing."""
        if self._shard.machine is self._machine:
            self._shard.fail(error)

    def _marker(self) -> TransactionMarker:
        effect = self._effect
        return TransactionMarker(
            effect.producer_id,
            effect.producer_epoch,
            effect.commit,
            self._shard.hosted.leader.leader_epoch,
            effect.transaction_version,
        )

    def _is_settled(self, partition: TopicPartition, error: KafkaError) -> bool:
        """Whether there is nothing to end any more: the topic is deleted, or a later epoch shows that it has ended."""
        if error.code is ErrorCode.invalid_producer_epoch:
            return True
        return self._broker.image.partition(*partition) is None

    def _note_failure(self, partition: TopicPartition, error: KafkaError) -> None:
        if self._backoff_ms == _BACKOFF_MS:
            logger.warning(
                "the end of the transaction of %r cannot be written to %s yet, and is tried again: %s",
                self._effect.transactional_id, partition, error,
            )  # fmt: skip


class AwaitMarkers(Operation):
    """Markers that are written, and wait for the replicas."""

    def __init__(self, outcome: Outcome, written: list[WrittenMarker]) -> None:
        super().__init__()
        self._outcome = outcome
        self._written = written

    def try_complete(self, now_ms: int) -> bool:
        if not all(each.is_committed or each.is_lost for each in self._written):
            return False
        self._settle()
        return True

    def on_expire(self, now_ms: int) -> None:
        self._settle()

    def on_error(self, error: Exception) -> None:
        self._outcome.fail(error)

    def _settle(self) -> None:
        lost = [each.partition for each in self._written if each.is_lost]
        self._outcome.settle([], [each for each in self._written if not each.is_lost], lost)


class RetryLater(Operation):
    def __init__(self, outcome: Outcome, partitions: list[TopicPartition]) -> None:
        super().__init__()
        self._outcome = outcome
        self._partitions = partitions

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self._outcome.write(self._partitions)

    def on_error(self, error: Exception) -> None:
        self._outcome.fail(error)
