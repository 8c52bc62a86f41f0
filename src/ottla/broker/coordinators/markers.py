"""Writes the markers that end a transaction into its partitions, and retries until all of them are committed.

As in Kafka, the coordinator responds to a commit when its outcome is in the coordinator's log; the markers follow. The
partitions that are led here get their markers before the coordinator decides anything else. So a producer that reads
the response finds the transaction complete, and its next one is not rejected with CONCURRENT_TRANSACTIONS.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.coordinators.internal_topics import CONSUMER_OFFSETS
from ottla.broker.coordinators.shard_runtime import RuntimeState, ShardRuntime
from ottla.broker.hosted_partition import Appended
from ottla.broker.partition_flush import flush_partition
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import TransactionMarker
from ottla.core.purgatory import Operation
from ottla.core.transactions.commands import MarkersWritten, WriteMarkers
from ottla.core.transactions.shard import TransactionShard
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.remote_markers import MarkerResults, RemoteMarkers
    from ottla.broker.lazy import Lazy

logger = logging.getLogger("ottla.transactions")

_BACKOFF_MS = 20
_BACKOFF_MAX_MS = 1000
_COMMIT_CHECK_MS = 30_000


class WrittenMarker(NamedTuple):
    """A marker that was appended. If its leadership ends before it is committed, it is written again."""

    partition: TopicPartition
    appended: Appended

    @property
    def is_committed(self) -> bool:
        return not self.is_lost and self.appended.is_committed

    @property
    def is_lost(self) -> bool:
        return self.appended.error is not None


def write_marker(
    services: BrokerServices, partition: TopicPartition, marker: TransactionMarker
) -> WrittenMarker:
    """Raises KafkaError; nothing has changed then."""
    hosted = services.partitions.find_leader(partition.topic, None, partition.partition)
    if partition.topic == CONSUMER_OFFSETS:
        # The group shard must see the marker: it makes the transaction's offsets visible, or drops them.
        runtime = services.groups.get().runtimes.at(partition.partition)
        if runtime is None:
            raise KafkaError(ErrorCode.not_coordinator, f"the groups of {partition} are not served here")
        plan = runtime.complete_transaction(marker)
    else:
        plan = hosted.append_marker(marker, services.env.clock.now_ms())
    return WrittenMarker(partition, Appended(hosted, hosted.leader, plan.last_offset + 1))


def flush_markers(services: BrokerServices, written: Iterable[WrittenMarker]) -> None:
    """Starts a flush of the partitions whose `flush.messages` requires one before the marker is committed."""
    for marker in written:
        if marker.appended.hosted.needs_flush:
            services.tasks.start(flush_partition(services.env, marker.appended.hosted))


class TransactionMarkers:
    """The markers of one transaction. If its shard is discarded, the next one writes the missing markers."""

    def __init__(
        self,
        services: BrokerServices,
        runtime: ShardRuntime[TransactionShard],
        effect: WriteMarkers,
        remote: "Lazy[RemoteMarkers]",
    ) -> None:
        self._services = services
        self._remote = remote
        self._runtime = runtime
        self._shard = runtime.shard
        self._effect = effect
        self._backoff_ms = _BACKOFF_MS

    def write(self, partitions: Iterable[TopicPartition]) -> None:
        if self._runtime.state is not RuntimeState.ACTIVE or self._runtime.shard is not self._shard:
            return
        done: list[TopicPartition] = []
        written: list[WrittenMarker] = []
        failed: list[TopicPartition] = []
        marker = self._marker()
        remote: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            if (leader_id := self._remote_leader(partition)) is not None:
                remote.setdefault(leader_id, []).append(partition)
                continue
            try:
                written.append(write_marker(self._services, partition, marker))
            except KafkaError as error:
                if error.code is ErrorCode.transaction_coordinator_fenced:
                    logger.error(
                        "another coordinator ends the transaction of %r: %s",
                        self._effect.transactional_id, error,
                    )  # fmt: skip
                    return
                if self._is_ended(partition, error):
                    done.append(partition)
                else:
                    self._log_failure(partition, error)
                    failed.append(partition)
        flush_markers(self._services, written)
        self.settle(done, written, failed)
        for leader_id, theirs in remote.items():
            self._remote.get().write(leader_id, marker, theirs).subscribe(
                partial(self._written_remotely, theirs), self.fail
            )

    def _remote_leader(self, partition: TopicPartition) -> int | None:
        """The other broker that leads the partition. None if this broker leads it, or none does."""
        image = self._services.metadata.image.partition(*partition)
        if image is None or not image.has_leader or image.leader == self._services.config.node_id:
            return None
        return image.leader

    def _written_remotely(
        self, partitions: list[TopicPartition], results: "MarkerResults | KafkaError"
    ) -> None:
        """Another broker has responded. What it has not written is retried, at the leader of that time."""
        done: list[TopicPartition] = []
        failed: list[TopicPartition] = []
        for partition in partitions:
            error = results if isinstance(results, KafkaError) else KafkaError(results[partition], "")
            if error.code is ErrorCode.transaction_coordinator_fenced:
                logger.error("another coordinator ends the transaction of %r", self._effect.transactional_id)
                return
            if error.code is ErrorCode.none or self._is_ended(partition, error):
                done.append(partition)
            else:
                self._log_failure(partition, error)
                failed.append(partition)
        self.settle(done, [], failed)

    def settle(
        self, done: list[TopicPartition], written: list[WrittenMarker], failed: list[TopicPartition]
    ) -> None:
        """Reports to the shard what is done, waits for what is not committed yet, and retries what failed."""
        delayed_operations = self._services.delayed_operations
        uncommitted = []
        for marker in written:
            if marker.is_committed:
                done.append(marker.partition)
            else:
                uncommitted.append(marker)
        if uncommitted:
            keys = [marker.partition for marker in uncommitted]
            delayed_operations.watch(DelayedMarkers(self, uncommitted), keys, _COMMIT_CHECK_MS)
        if failed:
            retry = MarkerRetry(self.fail, partial(self.write, failed))
            delayed_operations.watch(retry, (), self._backoff_ms)
            self._backoff_ms = min(2 * self._backoff_ms, _BACKOFF_MAX_MS)
        if done:
            self.report(done)

    def report(self, done: list[TopicPartition]) -> None:
        """Tells the shard that these partitions are done, and tells it again if its log took no records."""

        def reported(result: KafkaError | None) -> None:
            is_current = self._runtime.shard is self._shard
            if is_current and result is not None and result.code is ErrorCode.coordinator_not_available:
                retry = MarkerRetry(self.fail, partial(self.report, done))
                self._services.delayed_operations.watch(retry, (), _BACKOFF_MAX_MS)

        self._runtime.submit(MarkersWritten(markers=self._effect, partitions=tuple(done))).subscribe(
            reported, self.fail
        )

    def fail(self, error: Exception) -> None:
        """A step failed unexpectedly: loads the shard again, whose log says which markers are missing."""
        if self._runtime.shard is self._shard:
            self._runtime.fail(error)

    def _marker(self) -> TransactionMarker:
        effect = self._effect
        return TransactionMarker(
            effect.producer_id,
            effect.producer_epoch,
            effect.commit,
            self._runtime.epoch,
            effect.transaction_version,
        )

    def _is_ended(self, partition: TopicPartition, error: KafkaError) -> bool:
        """Whether no marker is needed: the topic is deleted, or a later epoch shows that the transaction has ended."""
        if error.code is ErrorCode.invalid_producer_epoch:
            return True
        return self._services.metadata.image.partition(*partition) is None

    def _log_failure(self, partition: TopicPartition, error: KafkaError) -> None:
        if self._backoff_ms == _BACKOFF_MS:
            logger.warning(
                "the marker of the transaction of %r cannot be written to %s yet, and is retried: %s",
                self._effect.transactional_id, partition, error,
            )  # fmt: skip


class DelayedMarkers(Operation):
    """Markers that are appended and wait until they are replicated."""

    def __init__(self, markers: TransactionMarkers, written: list[WrittenMarker]) -> None:
        super().__init__()
        self._markers = markers
        self._written = written

    def try_complete(self, now_ms: int) -> bool:
        if not all(marker.is_committed or marker.is_lost for marker in self._written):
            return False
        self._settle()
        return True

    def on_expire(self, now_ms: int) -> None:
        self._settle()

    def on_error(self, error: Exception) -> None:
        self._markers.fail(error)

    def _settle(self) -> None:
        lost = [marker.partition for marker in self._written if marker.is_lost]
        self._markers.settle([], [marker for marker in self._written if not marker.is_lost], lost)


class MarkerRetry(Operation):
    """A step that failed, and is repeated after a backoff."""

    def __init__(self, fail: Callable[[Exception], None], step: Callable[[], None]) -> None:
        super().__init__()
        self._fail = fail
        self._step = step

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self._step()

    def on_error(self, error: Exception) -> None:
        self._fail(error)
