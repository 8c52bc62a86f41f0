"""One partition of this broker: applies the rules of the partition leader to its log."""

import asyncio
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


# Larger batches are examined in a thread. Up to these sizes it takes a few milliseconds on the event loop.
_INLINE_RECORDS_MAX = 1_000
_INLINE_BYTES_MAX = 1024 * 1024
_INLINE_RECOMPRESSED_BYTES_MAX = 16 * 1024
# A client may send one batch per partition. Scanning two is enough to find that there are more.
_CLIENT_BATCHES_MAX = 2


class LongExamination(Exception):
    """A batch would take too long to examine on the event loop. Nothing was appended.

    Call `examine` in a thread (it does not use the partition), and pass its result to `append_examined`.
    """

    def __init__(self, partition: "HostedPartition", examine: Callable[[], ExaminedBatch]) -> None:
        super().__init__(f"a batch for {partition.topic_partition} must be examined in a thread")
        self.partition = partition
        self.examine = examine


class FetchResult(NamedTuple):
    """The result of a fetch of one partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    found: LogSlice | None
    aborted: list[tuple[int, int]] | None


# All partitions of a transaction get the same bytes, except for offset and leader epoch, which are set by the append.
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
        self.failure: KafkaError | None = None  # set when the disk has failed: every request is rejected then
        self.is_closed = False
        self.last_flush_ms = now_ms  # of the flushes by flush.ms
        # At the end of a move between directories. Flushes wait for it.
        self.last_copy: asyncio.Event | None = None
        self.is_internal = is_internal(topic_partition.topic)
        self._on_storage_error = on_storage_error
        self._notify = notify

    def append(self, records: Bytes, now_ms: int, *, required_acks: int) -> AppendPlan:
        """Appends a client's batch. Raises KafkaError if it rejects it, or LongExamination; state is unchanged then."""
        return self._append(records, now_ms, FORBIDDEN_FOR_CLIENTS, required_acks, None)

    def append_in_transaction(
        self, records: Bytes, now_ms: int, *, required_acks: int, verification: Verification | None
    ) -> AppendPlan:
        """As `append`, for a request with a transactional id. Its batch may also be non-transactional."""
        return self._append(records, now_ms, FORBIDDEN_IN_TRANSACTIONS, required_acks, verification)

    def append_examined(
        self,
        batch: ExaminedBatch,
        now_ms: int,
        *,
        required_acks: int,
        verification: Verification | None = None,
    ) -> AppendPlan:
        """Appends a client's batch after a LongExamination. The leader checks it again, as time has passed."""
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
        """Checks headers first: records of a batch that is rejected by its header are never unpacked."""
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
        """Appends the marker that ends a transaction."""
        header, records = _marker_batch(marker, now_ms)
        plan = self.leader.plan_marker(header, marker, now_ms)
        return self._write(plan, records, now_ms)

    def append_for_coordinator(self, batches: Sequence[tuple[BatchHeader, bytes]], now_ms: int) -> AppendPlan:
        """Appends batches of a coordinator of this broker, which need no checks."""
        headers = [header for header, _ in batches]
        plan = self.leader.plan_append(headers, now_ms, required_acks=-1, origin=AppendOrigin.COORDINATOR)
        records = batches[0][1] if len(batches) == 1 else b"".join([batch for _, batch in batches])
        return self._write(plan, records, now_ms)

    def configure(self, log: LogConfig, leader: LeaderSettings, records: RecordSettings) -> None:
        """Applies changed configs from the next request on."""
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
        """All effects of the leader are carried out here, so that no caller can forget to notify."""
        if effects.concern_waiting_requests:
            self._notify(self.topic_partition)

    def flushed(self, now_ms: int) -> None:
        """The log was flushed up to its recovery point: records that waited for the flush are committed."""
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
        """Starts a new leader epoch. Requests that wait are checked again."""
        self.leader = leader
        self._notify(self.topic_partition)

    def close(self) -> None:
        """The partition was deleted: requests that wait for it get an error."""
        self.is_closed = True
        self._notify(self.topic_partition)

    def fail(self, failure: KafkaError) -> None:
        """The disk has failed: requests that wait get an error, and later ones are rejected."""
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
        may_block: bool = True,
    ) -> FetchResult:
        """Reads from `offset`. Raises KafkaError OFFSET_OUT_OF_RANGE beyond the end that the reader may see.

        Raises ColdLookup if an index must be loaded first, unless `may_block` is set.
        """
        leader, offsets = self.leader, self.log.offsets
        limit = leader.fetch_limit(isolation_level, is_follower=is_follower)
        self._check_storage()
        if offset > (offsets.end if is_follower else leader.high_watermark):
            raise self._out_of_range(offset)
        try:
            found = None
            if offset < limit or offset < offsets.start:
                found = self.log.read(
                    offset, max_bytes, end_offset=limit, at_least_one=at_least_one, may_block=may_block
                )
            aborted = None
            if isolation_level == 1 and not is_follower:
                aborted = []
                if found is not None and found.region.length:
                    aborted = self.log.aborted_transactions(offset, found.end_offset)
        except OSError as error:
            raise self.storage_failed(error) from error
        return FetchResult(leader.high_watermark, leader.last_stable_offset, offsets.start, found, aborted)

    def delete_records(self, offset: int) -> int:
        """Moves the log start offset. Returns the low watermark: the lowest log start offset of all replicas."""
        self._check_storage()
        offset = self.leader.check_delete_records(offset)
        previous = self.log.log_start_offset
        self.log.delete_records_before(offset)
        self._apply(self.leader.on_log_start_moved(previous))
        return self.leader.low_watermark

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies retention. Returns the number of removed segments. A disk failure takes the directory offline."""
        previous = self.log.log_start_offset
        try:
            removed = self.log.delete_old_segments(now_ms, self.leader.high_watermark)
        except OSError as error:
            logger.error("%s", self.storage_failed(error).message)
            return 0
        self._apply(self.leader.on_log_start_moved(previous))
        return len(removed)

    @property
    def needs_flush(self) -> bool:
        """Whether `flush.messages` requires a flush before the last append is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def storage_failed(self, error: OSError) -> KafkaError:
        """Handles an error of the disk. Returns the error for the client."""
        return self._on_storage_error(self, error)

    def _check_storage(self) -> None:
        if self.failure is not None:
            raise KafkaError(self.failure.code, self.failure.message)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset} of {self.topic_partition} is not between {self.log.log_start_offset} and "
            f"{self.leader.high_watermark}",
        )
