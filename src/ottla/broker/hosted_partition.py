"""One partition of this broker: applies the rules of its role, leader or follower, to its log."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.topic_counters import TopicCounters
from ottla.core.partition.effects import LOG_END_MOVED, Effects
from ottla.core.partition.follower import FetchedBatch, PartitionFollower
from ottla.core.partition.leader import (
    AppendOrigin,
    AppendPlan,
    LeaderSettings,
    PartitionLeader,
    TransactionMarker,
)
from ottla.core.partition.producers import Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topics import is_internal
from ottla.protocol.metadata_records.records import NO_LEADER
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
from ottla.storage.log_dir import CheckpointWrite
from ottla.storage.segments import LogSlice
from ottla.storage.truncation import RemainingRecords

if TYPE_CHECKING:
    # Loaded with the first fetch: a broker starts sooner without them.
    from ottla.core.fetch_ready_set import SessionPartition
    from ottla.protocol.fetch_codec import FetchPartition

logger = logging.getLogger("ottla.partition")


# Larger batches are examined in a thread. Up to these sizes it takes a few milliseconds on the event loop.
_INLINE_RECORDS_MAX = 1_000
_INLINE_BYTES_MAX = 1024 * 1024
_INLINE_RECOMPRESSED_BYTES_MAX = 16 * 1024
# A client may send one batch per partition. Scanning two is enough to find that there are more.
_CLIENT_BATCHES_MAX = 2


class FollowerState(NamedTuple):
    """A fetching broker: its epoch as it says and as the metadata says (None if it is fenced or not registered)."""

    replica_epoch: int
    broker_epoch: int | None
    may_join_isr: bool


class LongExamination(Exception):
    """A batch would take too long to examine on the event loop. Nothing was appended.

    Call `examine` in a thread (it does not use the partition), and pass its result to `append_examined`.
    """

    def __init__(self, partition: "HostedPartition", examine: Callable[[], ExaminedBatch]) -> None:
        super().__init__(f"a batch for {partition.topic_partition} must be examined in a thread")
        self.partition = partition
        self.examine = examine


class Appended(NamedTuple):
    """Records that were appended under `leader`. They are committed under it, or their producer gets an error.

    Under another leadership `end_offset` may be reached by other records.
    """

    hosted: "HostedPartition"
    leader: PartitionLeader
    end_offset: int

    @property
    def is_committed(self) -> bool:
        """Ask `error` first: an old leadership keeps its last high watermark."""
        return self.leader.high_watermark >= self.end_offset

    @property
    def error(self) -> KafkaError | None:
        """Why it is not known any more whether the records will be committed."""
        return self.hosted.leadership_error(self.leader)


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
        role: PartitionLeader | PartitionFollower,
        record_settings: RecordSettings,
        on_storage_error: Callable[["HostedPartition", OSError], KafkaError],
        notify: Callable[[TopicPartition], None],
        monotonic_ms: Callable[[], int],
        propose_isr: Callable[["HostedPartition", PartitionLeader, tuple[int, ...]], None],
        plan_truncation: Callable[[TopicPartition, int], CheckpointWrite | None],
        counters: TopicCounters,
    ) -> None:
        """`notify` wakes the requests that wait for this partition. `propose_isr` tells the controller of a new ISR.

        `plan_truncation` returns what to write before the log is truncated to an offset.

        `monotonic_ms` measures how far followers lag, because the wall clock may be set. Methods about followers and
        flushes expect that time; those that write or delete records expect the time of the wall clock.
        """
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.role = role
        self.is_led = isinstance(role, PartitionLeader)
        self.record_settings = record_settings
        self._keeps_records_opaque = record_settings == RecordSettings()
        self.failure: KafkaError | None = None  # set when the disk has failed: every request is rejected then
        # Of before an unclean stop. Counts only if the first leader after it is this broker, alone.
        self.untrusted_high_watermark = 0
        self.is_closed = False
        self._closed_because: KafkaError | None = None
        self.last_flush_ms = monotonic_ms()  # of the flushes by flush.ms
        self._monotonic_ms = monotonic_ms
        # At the end of a move between directories. Flushes wait for it.
        self.last_copy: asyncio.Event | None = None
        self.is_internal = is_internal(topic_partition.topic)
        self._on_storage_error = on_storage_error
        self._notify = notify
        self._propose_isr = propose_isr
        self._plan_truncation = plan_truncation
        self.counters = counters
        self._watchers: dict[SessionPartition, None] = {}  # an ordered set

    # -- roles

    @property
    def leader(self) -> PartitionLeader:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER if this broker does not lead the partition."""
        role = self.role
        if isinstance(role, PartitionLeader):
            return role
        raise self.not_leader()

    def not_leader(self) -> KafkaError:
        """The error that names the leader, for a request that only the leader serves."""
        role = self.role
        leader_id = role.leader_id if isinstance(role, PartitionFollower) else NO_LEADER
        who = f"is led by broker {leader_id}" if leader_id != NO_LEADER else "has no leader"
        return KafkaError(
            ErrorCode.not_leader_or_follower,
            f"{self.topic_partition} {who} in leader epoch {role.leader_epoch}: refresh the metadata",
        )

    def lead(self, leader: PartitionLeader) -> None:
        """Starts a new leader epoch. Requests that wait under the previous role get an error."""
        self._take_role(leader)

    def follow(self, follower: PartitionFollower) -> None:
        """Another broker leads in this leader epoch, or none. Waiting requests get an error, as with `lead`."""
        self._take_role(follower)

    def _take_role(self, role: PartitionLeader | PartitionFollower) -> None:
        self.role = role
        self.is_led = isinstance(role, PartitionLeader)
        self._wake()

    def leadership_error(self, leader: PartitionLeader) -> KafkaError | None:
        """Why an operation that began under `leader` cannot complete; None while `leader` leads."""
        if self.failure is not None:
            return self.failure
        if self._closed_because is not None:
            return self._closed_because
        if self.role is not leader:
            return KafkaError(
                ErrorCode.not_leader_or_follower,
                f"leader epoch {leader.leader_epoch} of {self.topic_partition} has ended: refresh the metadata",
            )
        return None

    def isr_committed(
        self, isr: Sequence[int], replica_ids: Sequence[int], partition_epoch: int, now_ms: int
    ) -> None:
        """The controller has changed the ISR or the replicas within the leader epoch."""
        role = self.role
        if isinstance(role, PartitionLeader):
            before = len(role.isr)
            self._apply(role.on_isr_committed(isr, partition_epoch, now_ms, replica_ids=replica_ids))
            self.counters.isr_expands += len(role.isr) > before
            self.counters.isr_shrinks += len(role.isr) < before
        else:
            role.partition_epoch = max(role.partition_epoch, partition_epoch)

    def isr_rejected(self, leader: PartitionLeader, now_ms: int) -> None:
        """The controller has rejected the ISR that `leader` proposed, and has not changed it."""
        self._apply(leader.withdraw_isr_proposal(now_ms))

    def follower_unavailable(self, broker_id: int, now_ms: int) -> None:
        """The controller has fenced the broker, or it shuts down."""
        if isinstance(self.role, PartitionLeader):
            self._apply(self.role.on_follower_unavailable(broker_id, now_ms))

    def check_isr(self, now_ms: int) -> None:
        """A leader proposes to remove the followers that lag.

        Not if its disk has failed: alone in the ISR, it would keep the others from being elected.
        """
        role = self.role
        if isinstance(role, PartitionLeader) and role.replicas.followers and self.failure is None:
            self._apply(role.tick(now_ms))

    def plan_truncation(self, offset: int) -> CheckpointWrite | None:
        """To be written before `truncate` or `start_again_at`; None if nothing need be written any more."""
        return self._plan_truncation(self.topic_partition, offset)

    def truncate(self, offset: int, now_ms: int, remaining: RemainingRecords | None = None) -> None:
        """Removes records of a follower's log that its leader does not have. Raises KafkaError if the disk fails.

        Reads the log if `remaining` is not given. `truncate_partition` lets a thread do that.
        """
        role = self.role
        assert isinstance(role, PartitionFollower), "a leader never truncates its log"
        self._check_storage()
        try:
            self.log.truncate_to(offset, now_ms, remaining)
        except OSError as error:
            raise self.storage_failed(error) from error
        role.on_truncated()
        self._wake()

    def start_again_at(self, offset: int, now_ms: int) -> None:
        """Removes all records of a follower's log: the next one has `offset`. Raises KafkaError if the disk fails."""
        role = self.role
        assert isinstance(role, PartitionFollower), "a leader never truncates its log"
        self._check_storage()
        try:
            self.log.truncate_fully_and_start_at(offset, now_ms)
        except OSError as error:
            raise self.storage_failed(error) from error
        role.on_truncated()
        self._wake()

    # -- appends

    def append_from_leader(self, follower: PartitionFollower, records: memoryview, now_ms: int) -> None:
        """Appends batches that were fetched under `follower`, byte for byte. Raises KafkaError if they do not fit."""
        if self.role is not follower:
            raise self.not_leader()
        self._check_storage()
        batches = follower.accept(records)
        for together in _up_to_bytes(batches, self.log.config.segment_bytes):
            try:
                self.log.append(together, now_ms)
            except OSError as error:
                raise self.storage_failed(error) from error
            self.counters.replication_bytes_in += sum(header.size for header, _ in together)
        if batches:
            self._apply(LOG_END_MOVED)

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
        leader = self.leader
        plan = leader.plan_append(
            (batch.header,), now_ms, required_acks=required_acks, verification=verification
        )
        return self._write(leader, plan, batch.records, now_ms)

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
        leader = self.role
        if not isinstance(leader, PartitionLeader):
            raise self.not_leader()
        plan = leader.plan_append(headers, now_ms, required_acks=required_acks, verification=verification)
        if plan.is_duplicate:
            return self._write(leader, plan, records, now_ms)
        header = headers[0]
        if self._keeps_records_opaque or not self.record_settings.needs_records_of(header):
            check_start(records, header)
            return self._write(leader, plan, records, now_ms)
        examined = self._examine(records, header, now_ms)
        if examined.header is header:
            return self._write(leader, plan, records, now_ms)
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
        leader = self.leader
        plan = leader.plan_marker(header, marker, now_ms)
        return self._write(leader, plan, records, now_ms)

    def append_for_coordinator(
        self, batches: Sequence[tuple[BatchHeader, bytes]], now_ms: int, leader: PartitionLeader
    ) -> AppendPlan:
        """Appends batches of a coordinator of this broker, which need no checks.

        The coordinator has loaded its state under `leader`: under another leadership its records would be wrong.
        """
        if self.role is not leader:
            raise self.leadership_error(leader) or self.not_leader()
        headers = [header for header, _ in batches]
        plan = leader.plan_append(headers, now_ms, required_acks=-1, origin=AppendOrigin.COORDINATOR)
        records = batches[0][1] if len(batches) == 1 else b"".join([batch for _, batch in batches])
        return self._write(leader, plan, records, now_ms)

    def configure(self, log: LogConfig, leader: LeaderSettings, records: RecordSettings) -> None:
        """Applies changed configs from the next request on."""
        self.log.config = log
        self.record_settings = records
        self._keeps_records_opaque = records == RecordSettings()
        if isinstance(self.role, PartitionLeader):
            self._apply(self.role.configure(leader, self._monotonic_ms()))

    def _write(self, leader: PartitionLeader, plan: AppendPlan, records: Bytes, now_ms: int) -> AppendPlan:
        if plan.is_duplicate:
            # As Kafka does: the retry of a batch is the last event if all in-sync replicas have it by now.
            self._apply(leader.on_appended(plan, self._monotonic_ms()))
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
        counters = self.counters
        counters.bytes_in += len(records)
        counters.messages_in += plan.last_offset - plan.first_offset + 1
        self._apply(leader.on_appended(plan, self._monotonic_ms(), awaits_flush=self.needs_flush))
        return plan

    def _apply(self, effects: Effects) -> None:
        """All effects of the role are carried out here, so that no caller can forget to notify."""
        # Unpacked at once: this runs for every append.
        log_end, high_watermark, log_start, low_watermark, isr_changed, proposed_isr, delete_before = effects
        if proposed_isr is not None:
            self._propose_isr(self, self.leader, proposed_isr)
        if delete_before is not None:
            self._delete_before(delete_before)
        if log_end or high_watermark or log_start or low_watermark:
            self._wake()
        elif isr_changed:
            self._mark_watchers()

    # -- waiting requests and fetch sessions

    def watch(self, watcher: "SessionPartition") -> None:
        """Marks the partition of a fetch session from now on, whenever a fetch may find something else than before."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: "SessionPartition") -> None:
        self._watchers.pop(watcher, None)

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def _wake(self) -> None:
        self._notify(self.topic_partition)
        if self._watchers:
            self._mark_watchers()

    def _mark_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.mark()

    # -- replication

    def follower_kept_fetching(self, replica_id: int, until_ms: int) -> None:
        """A follower with all records has fetched until `until_ms`, and nothing had changed for it."""
        if isinstance(self.role, PartitionLeader):
            self.role.on_idle_fetches(replica_id, until_ms)

    def follower_fetched(
        self,
        leader: PartitionLeader,
        replica_id: int,
        fetch: "FetchPartition",
        state: FollowerState,
        now_ms: int,
    ) -> None:
        """A follower has read from here under `leader`. Raises KafkaError if the fetch must not count."""
        self._apply(
            leader.on_fetch(
                replica_id,
                fetch.fetch_offset,
                fetch.current_leader_epoch,
                now_ms,
                log_start_offset=fetch.log_start_offset,
                replica_epoch=state.replica_epoch,
                broker_epoch=state.broker_epoch,
                may_join_isr=state.may_join_isr,
            )
        )

    def fetched_from_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """A response of the leader was appended. It has the leader's high watermark and log start offset."""
        role = self.role
        if isinstance(role, PartitionFollower):
            self._apply(role.on_fetched(high_watermark, log_start_offset))

    def flushed(self, now_ms: int) -> None:
        """The log was flushed up to its recovery point: records that waited for the flush are committed."""
        self._apply(self.role.on_flushed(self.log.recovery_point, now_ms))

    def close(self, reason: KafkaError) -> None:
        """The partition was deleted or moved to other brokers: requests that wait for it get `reason`."""
        self.is_closed = True
        self._closed_because = reason
        self._notify(self.topic_partition)
        for watcher in tuple(self._watchers):
            watcher.release()

    def fail(self, failure: KafkaError) -> None:
        """The disk has failed: requests that wait get an error, and later ones are rejected."""
        self.failure = failure
        self._wake()

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
        """Reads from `offset`. Raises KafkaError OFFSET_OUT_OF_RANGE before the start and beyond the end of the log.

        Between the end that the reader may see and the end of the log there is nothing to read yet: a new leader's high
        watermark may be behind the one that the reader knows.

        Raises ColdLookup if an index must be loaded first, unless `may_block` is set.
        """
        self.counters.fetch_requests += 1
        role, offsets = self.role, self.log.offsets
        limit = role.fetch_limit(isolation_level, is_follower=is_follower)
        self._check_storage()
        if offset > offsets.end:
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
        return FetchResult(role.high_watermark, role.last_stable_offset, offsets.start, found, aborted)

    def delete_records(self, offset: int) -> int:
        """Moves the log start offset. The followers do so with their next fetches.

        Returns the offset that the low watermark reaches when all replicas have deleted the records.
        """
        self._check_storage()
        offset = self.leader.check_delete_records(offset)
        self._delete_before(offset)
        return offset

    def _delete_before(self, offset: int) -> None:
        previous = self.log.log_start_offset
        self.log.delete_records_before(offset)
        self._apply(self.role.on_log_start_moved(previous))

    def delete_old_segments(self, now_ms: int) -> int:
        """Applies retention. Returns the number of removed segments. A disk failure takes the directory offline."""
        previous = self.log.log_start_offset
        try:
            removed = self.log.delete_old_segments(now_ms, self.role.high_watermark)
        except OSError as error:
            logger.error("%s", self.storage_failed(error).message)
            return 0
        self._apply(self.role.on_log_start_moved(previous))
        return len(removed)

    @property
    def needs_flush(self) -> bool:
        """Whether `flush.messages` requires a flush before the last append is acknowledged."""
        log = self.log
        return log.offsets.end - log.recovery_point >= log.config.flush_messages

    def storage_failed(self, error: OSError, log: Log | None = None) -> KafkaError:
        """Handles an error of the disk. Returns the error for the client.

        `log` is the one that was used, if a thread used it. If the replica was moved meanwhile, its files are gone,
        which says nothing about the directory that the replica is in now.
        """
        if log is not None and log is not self.log:
            return KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self.topic_partition} was moved to another data directory meanwhile; try again",
            )
        return self._on_storage_error(self, error)

    def _check_storage(self) -> None:
        if self.failure is not None:
            raise KafkaError(self.failure.code, self.failure.message)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.offset_out_of_range,
            f"offset {offset} of {self.topic_partition} is not between {self.log.log_start_offset} and "
            f"{self.log.log_end_offset}",
        )


def _up_to_bytes(batches: list[FetchedBatch], bytes_max: int) -> Iterator[list[FetchedBatch]]:
    """Groups of batches that fit into a segment; a batch that is larger is alone."""
    together: list[FetchedBatch] = []
    size = 0
    for batch in batches:
        if together and size + batch[0].size > bytes_max:
            yield together
            together, size = [], 0
        together.append(batch)
        size += batch[0].size
    if together:
        yield together
