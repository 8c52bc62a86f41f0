"""One partition of this broker: the leader's rules in front of the log's files."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple
from uuid import UUID

from ottla.core.partition.leader import (
    AppendOrigin,
    AppendPlan,
    Effects,
    LeaderSettings,
    PartitionLeader,
    TransactionMarker,
)
from ottla.core.partition.producers import Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topics import is_internal
from ottla.records.compression import UnpackedTooLarge
from ottla.records.header import (
    FORBIDDEN_FOR_CLIENTS,
    FORBIDDEN_IN_TRANSACTIONS,
    BatchHeader,
    Bytes,
    check_client_batch,
    planned_parts,
    rewrite_header,
    scan_batches,
)
from ottla.records.markers import EndTransactionMarker, build_marker_batch
from ottla.records.record_check import check_start
from ottla.records.validate import ExaminedBatch, RecordSettings, examine
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segments import LogSlice

logger = logging.getLogger("ottla.partition")


# Above this, the records of a batch are examined beside the event loop: below it that takes a few milliseconds.
_INLINE_RECORDS_MAX = 1_000
_INLINE_BYTES_MAX = 1024 * 1024
_INLINE_RECOMPRESSED_BYTES_MAX = 16 * 1024
# A client sends one batch for each partition; of more, two are enough to know.
_CLIENT_BATCHES_MAX = 2


class LongExamination(Exception):
    """A batch takes too long to examine on the event loop: nothing was appended.

    Call `examine` beside the loop (it needs nothing of the partition) and pass its result to `append_examined`.
    """

    def __init__(self, partition: "HostedPartition", examine: Callable[[], ExaminedBatch]) -> None:
        super().__init__(f"a batch for {partition.topic_partition} must be examined beside the event loop")
        self.partition = partition
        self.examine = examine


class FetchResult(NamedTuple):
    """What a fetch of one partition found."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    found: LogSlice | None
    aborted: list[tuple[int, int]] | None


# All partitions of a transaction get the same bytes, save for offset and leader epoch, which are set when written.
@lru_cache(maxsize=8)
def _marker_batch(marker: TransactionMarker, now_ms: int) -> tuple[BatchHeader, bytes]:
    return build_marker_batch(
        EndTransactionMarker(marker.commit, marker.coordinator_epoch),
        timestamp=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


class HostedPartition:
    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        leader: PartitionLeader,
        record_settings: RecordSettings,
        on_storage_error: Callable[["HostedPartition", OSError], KafkaError],
        notify: Callable[[TopicPartition], None],
        now_ms: int,
    ) -> None:
        """`notify` wakes the requests that wait for this partition."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = leader
        self.record_settings = record_settings
        self._keeps_records_opaque = record_settings == RecordSettings()
        self.failure: KafkaError | None = None  # set when the disk below is gone: all is refused then
        self.is_closed = False
        self.last_flush_ms = now_ms  # by time (flush.ms)
        self.is_internal = is_internal(topic_partition.topic)
        self._on_storage_error = on_storage_error
        self._notify = notify

    def append(self, records: Bytes, now_ms: int, *, required_acks: int) -> AppendPlan:
        """Appends a client's batch. Raises KafkaError if it is refused, or LongExamination; state is unchanged then."""
        return self._append(records, now_ms, FORBIDDEN_FOR_CLIENTS, required_acks, None)

    def append_in_transaction(
        self, records: Bytes, now_ms: int, *, required_acks: int, verification: Verification | None
    ) -> AppendPlan:
        """Likewise, a batch sent under a transactional id; it may also be outside of any transaction."""
        return self._append(records, now_ms, FORBIDDEN_IN_TRANSACTIONS, required_acks, verification)

    def append_examined(
        self,
        batch: ExaminedBatch,
        now_ms: int,
        *,
        required_acks: int,
        verification: Verification | None = None,
    ) -> AppendPlan:
        """Appends a client's batch after a LongExamination. The leader decides anew: time has passed."""
        plan = self.leader.plan_append(
            (batch.header,), now_ms, required_acks=required_acks, verification=verification
        )
        return self._write(plan, batch.records, now_ms)

    def _append(
        self,
        records: Bytes,
        now_ms: int,
        forbidden: int,
        required_acks: int,
        verification: Verification | None,
    ) -> AppendPlan:
        """What the header decides comes first: nothing is unpacked for a batch that is refused in any case."""
        headers = scan_batches(records, _CLIENT_BATCHES_MAX)
        for header in headers:
            check_client_batch(header, forbidden)
        plan = self.leader.plan_append(
            headers, now_ms, required_acks=required_acks, verification=verification
        )
        if plan.is_duplicate:
            return plan
        header = headers[0]
        if self._keeps_records_opaque or not self.record_settings.needs_records_of(header):
            check_start(records, header)
            return self._write(plan, records, now_ms)
        examined = self._examine(records, header, now_ms)
        if examined.header is header:
            return self._write(plan, records, now_ms)
        return self.append_examined(examined, now_ms, required_acks=required_acks, verification=verification)

    def _examine(self, records: Bytes, header: BatchHeader, now_ms: int) -> ExaminedBatch:
        settings = self.record_settings
        bytes_max = _INLINE_RECOMPRESSED_BYTES_MAX if settings.recompresses(header) else _INLINE_BYTES_MAX
        if header.records_count <= _INLINE_RECORDS_MAX and header.size <= bytes_max:
            try:
                return examine(records, header, settings, now_ms, bytes_max)
            except UnpackedTooLarge:
                pass
        raise LongExamination(self, partial(examine, records, header, settings, now_ms))

    def append_marker(self, marker: TransactionMarker, now_ms: int) -> AppendPlan:
        """Appends the end of a transaction."""
        header, records = _marker_batch(marker, now_ms)
        plan = self.leader.plan_marker(header, marker, now_ms)
        return self._write(plan, records, now_ms)

    def append_internally(self, batches: Sequence[tuple[BatchHeader, bytes]], now_ms: int) -> AppendPlan:
        """Appends what a coordinator of this broker wrote, and need not be scanned."""
        headers = [header for header, _ in batches]
        plan = self.leader.plan_append(headers, now_ms, required_acks=-1, origin=AppendOrigin.COORDINATOR)
        records = batches[0][1] if len(batches) == 1 else b"".join([batch for _, batch in batches])
        return self._write(plan, records, now_ms)

    def configure(self, log: LogConfig, leader: LeaderSettings, records: RecordSettings) -> None:
        """Takes over changed configs; they hold from the next request on."""
        self.log.config = log
        self.leader.settings = leader
        self.record_settings = records
        self._keeps_records_opaque = records == RecordSettings()

    def _write(self, plan: AppendPlan, records: Bytes, now_ms: int) -> AppendPlan:
        if plan.is_duplicate:
            return plan
        parts = []
        for header, position, rewritten in plan.batches:
            prepare = rewrite_header if rewritten else planned_parts
            parts.append((header, prepare(records, position, header)))
        self._check_storage()
        try:
            self.log.append(parts, now_ms)
        except OSError as error:
            raise self.storage_failed(error) from error
        self._apply(self.leader.on_appended(plan, now_ms, awaits_flush=self.needs_flush))
        return plan

    def _apply(self, effects: Effects) -> None:
        """The one place where the effects of the leader's rules are carried out: no caller can forget a waiter."""
        if effects.concern_waiting_requests:
            self._notify(self.topic_partition)

    def flushed(self, now_ms: int) -> None:
        """The log is on disk up to its recovery point: what waited for the flush is committed."""
        self._apply(self.leader.on_flushed(self.log.recovery_point, now_ms))

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, leader_epoch: int, log_start_offset: int, now_ms: int
    ) -> None:
        """Raises KafkaError if `replica_id` is no replica of this partition."""
        self._apply(
            self.leader.on_fetch(
                replica_id, fetch_offset, leader_epoch, now_ms, log_start_offset=log_start_offset
            )
        )

    def lead(self, leader: PartitionLeader) -> None:
        """A new leader epoch begins; requests that wait for the old one look again."""
        self.leader = leader
        self._notify(self.topic_partition)

    def close(self) -> None:
        """The partition was deleted; requests that wait for it learn of it."""
        self.is_closed = True
        self._notify(self.topic_partition)

    def fail(self, failure: KafkaError) -> None:
        """The disk below is gone; requests that wait learn of it, and later ones are refused."""
        self.failure = failure
        self._notify(self.topic_partition)

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation_level: int,
        is_follower: bool,
        at_least_one: bool,
    ) -> FetchResult:
        """Reads from `offset`; KafkaError OFFSET_OUT_OF_RANGE beyond what the reader may know of."""
        leader = self.leader
        limit = leader.fetch_limit(isolation_level, is_follower=is_follower)
        self._check_storage()
        if offset > (leader.log_end_offset if is_follower else leader.high_watermark):
            raise self._out_of_range(offset)
        try:
            found = None
            if offset < limit or offset < leader.log_start_offset:
                found = self.log.read(offset, max_bytes, end_offset=limit, at_least_one=at_least_one)
            aborted = None
            if isolation_level == 1 and not is_follower:
                aborted = []
                if found is not None and found.region.length:
                    aborted = self.log.aborted_transactions(offset, found.end_offset)
        except OSError as error:
            raise self.storage_failed(error) from error
        return FetchResult(
            leader.high_watermark, leader.last_stable_offset, leader.log_start_offset, found, aborted
        )

    def delete_records(self, offset: int) -> int:
        """Moves the start of the log; the low watermark, before which no replica keeps anything."""
        self._check_storage()
        offset = self.leader.check_delete_records(offset)
        self.log.delete_records_before(offset)
        self._apply(self.leader.move_log_start_offset(offset))
        return self.leader.low_watermark

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies retention; how many segments were removed. A disk that fails takes its directory offline."""
        try:
            removed = self.log.delete_old_segments(now_ms, self.leader.high_watermark)
        except OSError as error:
            logger.error("%s", self.storage_failed(error).message)
            return 0
        self._apply(self.leader.move_log_start_offset(self.log.log_start_offset))
        return len(removed)

    @property
    def needs_flush(self) -> bool:
        """Whether `flush.messages` asks for an fsync before what was appended is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def storage_failed(self, error: OSError) -> KafkaError:
        """The disk below has failed: what the client is to be told."""
        return self._on_storage_error(self, error)

    def _check_storage(self) -> None:
        if self.failure is not None:
            raise KafkaError(self.failure.code, self.failure.message)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset} of {self.topic_partition} is not between {self.leader.log_start_offset} and "
            f"{self.leader.high_watermark}",
        )
