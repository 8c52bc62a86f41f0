"""The rules of a partition's leader: what may be appended and where, what is committed, what may be read.

The leader plans an append. The shell writes the plan to the log, which updates the offsets, producer states and leader
epochs that it shares with this machine. `on_appended` then moves the high watermark.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NoReturn

from ottla.core.partition.effects import HIGH_WATERMARK_MOVED, NO_EFFECTS, Effects
from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.in_sync_replicas import NO_BROKER_EPOCH, Follower, InSyncReplicas
from ottla.core.partition.log_offsets import LogOffsets
from ottla.core.partition.producers import Duplicate, ProducerStateTable, Verification
from ottla.core.partition.role import PartitionRole
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_TIMESTAMP
from ottla.model.tuples import new_tuple
from ottla.records.header import LOG_OVERHEAD, TIMESTAMP_TYPE_MASK, BatchHeader

ACKS_ALL = -1
# In a DeleteRecords request: everything up to the high watermark.
DELETE_TO_HIGH_WATERMARK = -1


class AppendOrigin(Enum):
    """Decides which checks apply: coordinators append several batches at once, without sequence numbers."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in a partition, as the transaction coordinator orders it.

    `coordinator_epoch` is the leader epoch of the coordinator's own partition. It fences a former coordinator.
    """

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The topic and broker configs that a leader's decisions depend on."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    log_append_time: bool = False
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    deletes_records: bool = True  # False if cleanup.policy is only "compact"


class PlannedBatch(NamedTuple):
    """`header` is final, except for its checksum if `rewritten`: then bytes that the checksum covers change."""

    header: BatchHeader
    position: int
    rewritten: bool


class AppendPlan(NamedTuple):
    """The batches with their offsets. A duplicate has no batches, and the offsets of the original."""

    batches: list[PlannedBatch]
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    is_duplicate: bool


class IsrProposal(NamedTuple):
    """An ISR that the leader proposes to the controller (AlterPartition, KIP-497).

    The controller rejects it if the epochs are not the present ones. `isr` has the broker epoch of each follower's last
    fetch: a broker that has restarted since then must not join (KIP-903). That of the leader itself is -1.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


_APPENDED = Effects(log_end_moved=True)
_APPENDED_AND_COMMITTED = Effects(log_end_moved=True, high_watermark_moved=True)


class PartitionLeader(PartitionRole):
    def __init__(
        self,
        offsets: LogOffsets,
        producers: ProducerStateTable,
        epochs: LeaderEpochCache,
        *,
        leader_epoch: int,
        high_watermark: int,
        local_id: int,
        replica_ids: Sequence[int],
        isr: Iterable[int],
        settings: LeaderSettings,
        now_ms: int,
        partition_epoch: int = 0,
        unflushed_from: int | None = None,
    ) -> None:
        """`unflushed_from` is the first offset that waits for a flush before it is committed, if there is one."""
        super().__init__(
            offsets,
            producers,
            epochs,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            high_watermark=high_watermark,
        )
        self.settings = settings
        self.replicas = InSyncReplicas(local_id=local_id, replica_ids=replica_ids, isr=isr, now_ms=now_ms)
        self._epoch_start_offset = offsets.end
        self._unflushed_from = unflushed_from
        # Followers may ask for this epoch before its first append, and must find where to truncate (KIP-101).
        epochs.assign(leader_epoch, offsets.end)
        self._advance_high_watermark(now_ms)

    # -- appends

    def plan_append(
        self,
        headers: Sequence[BatchHeader],
        now_ms: int,
        *,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> AppendPlan:
        """Gives the batches their offsets. Raises KafkaError if they are rejected. Changes no state."""
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            raise self._not_enough_replicas()
        if origin is AppendOrigin.CLIENT and len(headers) != 1:
            raise KafkaError(
                ErrorCode.invalid_record,
                "a produce request must have one record batch for each partition, not "
                f"{'none' if not headers else 'several'}",
            )
        position = 0
        for header in headers:
            self._check_batch(header, now_ms)
            if header.producer_id >= 0:
                duplicate = self._check_producer(header, origin, verification)
                if duplicate is not None:
                    return AppendPlan([], *duplicate, is_duplicate=True)
            position += header.batch_length + LOG_OVERHEAD
        if position > self.settings.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{position} bytes in one append are more than a segment holds "
                f"(segment.bytes={self.settings.segment_bytes})",
            )
        return self._plan(headers, now_ms)

    def plan_marker(self, header: BatchHeader, marker: TransactionMarker, now_ms: int) -> AppendPlan:
        """Gives the control batch of `marker` its offset. Raises KafkaError if it is rejected."""
        if self.is_under_min_isr:
            raise self._not_enough_replicas()
        self._producers.check_marker(header, marker.coordinator_epoch, marker.transaction_version)
        return self._plan((header,), now_ms)

    def _plan(self, headers: Sequence[BatchHeader], now_ms: int) -> AppendPlan:
        log_append_time = self.settings.log_append_time
        epoch = self.leader_epoch
        first_offset = offset = self._offsets.end
        position = 0
        batches: list[PlannedBatch] = []
        for header in headers:
            _, length, _, magic, crc, sent, delta, oldest, newest, producer_id, epoch_of, sequence, count = (
                header
            )
            if log_append_time:
                attributes, newest = sent | TIMESTAMP_TYPE_MASK, now_ms
            else:
                attributes = sent & ~TIMESTAMP_TYPE_MASK
            # Not _replace: it takes several times as long, and this runs for every batch.
            placed = (
                offset, length, epoch, magic, crc, attributes, delta, oldest, newest,
                producer_id, epoch_of, sequence, count,
            )  # fmt: skip
            rewritten = log_append_time or attributes != sent
            batches.append(new_tuple(PlannedBatch, (new_tuple(BatchHeader, placed), position, rewritten)))
            offset += delta + 1
            position += length + LOG_OVERHEAD
        log_append_time_ms = now_ms if log_append_time else NO_TIMESTAMP
        return new_tuple(AppendPlan, (batches, first_offset, offset - 1, log_append_time_ms, False))

    def on_appended(self, plan: AppendPlan, now_ms: int, *, awaits_flush: bool = False) -> Effects:
        """The log has appended the batches of `plan` and updated its offsets, producers and epochs.

        With `awaits_flush` they are not committed before `on_flushed`, so that no consumer reads records that a power
        failure could still lose.
        """
        if plan.is_duplicate:
            return self.advance(now_ms)
        if awaits_flush and self._unflushed_from is None:
            self._unflushed_from = plan.first_offset
        return _APPENDED_AND_COMMITTED if self._advance_high_watermark(now_ms) else _APPENDED

    def on_flushed(self, end_offset: int, now_ms: int) -> Effects:
        """Everything before `end_offset` is on disk."""
        if self._unflushed_from is None or end_offset <= self._unflushed_from:
            return NO_EFFECTS
        self._unflushed_from = None if end_offset >= self._offsets.end else end_offset
        return self.advance(now_ms)

    def is_acknowledged(self, required_offset: int) -> bool:
        """Whether everything before `required_offset` is committed, so that a produce with acks=all is complete.

        Raises NOT_ENOUGH_REPLICAS_AFTER_APPEND if it is committed but the ISR has become too small since.
        """
        if self.high_watermark < required_offset:
            return False
        isr = self.replicas.maximal
        if len(isr) < self._effective_min_isr():
            raise KafkaError(
                ErrorCode.not_enough_replicas_after_append,
                f"the records are written, but only the replicas {list(isr)} are in sync where "
                f"min.insync.replicas asks for {self._effective_min_isr()}; a retry may write them again",
            )
        return True

    def _check_batch(self, header: BatchHeader, now_ms: int) -> None:
        settings = self.settings
        size = header.batch_length + LOG_OVERHEAD
        if size > settings.max_message_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"the record batch has {size} bytes, more than max.message.bytes={settings.max_message_bytes}",
            )
        timestamp = header.max_timestamp
        if header.attributes & TIMESTAMP_TYPE_MASK and (
            settings.log_append_time or timestamp == NO_TIMESTAMP
        ):
            raise KafkaError(
                ErrorCode.invalid_timestamp,
                "the batch is marked LogAppendTime, which only a broker may set; send it with CreateTime",
            )
        if not settings.log_append_time and timestamp > now_ms + settings.timestamp_after_max_ms:
            raise KafkaError(
                ErrorCode.invalid_timestamp,
                f"timestamp {timestamp} is {timestamp - now_ms} ms ahead of the broker's clock, more than "
                f"message.timestamp.after.max.ms={settings.timestamp_after_max_ms}",
            )

    def _check_producer(
        self, header: BatchHeader, origin: AppendOrigin, verification: Verification | None
    ) -> Duplicate | None:
        if origin is AppendOrigin.CLIENT:
            return self._producers.check(header, verification)
        self._producers.check_coordinator_batch(header)
        return None

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.not_enough_replicas,
            f"only the replicas {list(self.isr)} are in sync where min.insync.replicas asks for "
            f"{self._effective_min_isr()}; nothing was written",
        )

    # -- replication

    def check_follower(self, replica_id: int, leader_epoch: int) -> Follower:
        """Raises KafkaError if `replica_id` is not a follower of this leader in `leader_epoch`."""
        self.check_epoch(leader_epoch)
        follower = self.replicas.followers.get(replica_id)
        if follower is None:
            self._reject_unknown_follower(replica_id, leader_epoch)
        return follower

    def on_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        leader_epoch: int,
        now_ms: int,
        *,
        log_start_offset: int,
        replica_epoch: int = NO_BROKER_EPOCH,
        broker_epoch: int | None = None,
        may_join_isr: bool = True,
    ) -> Effects:
        """A follower fetches from `fetch_offset`, so it has all records before it.

        Call it once per fetch, after the check for divergence and the read. `broker_epoch` is the follower's epoch in
        the metadata, if it is registered and not fenced: a fetch of an earlier registration is rejected (KIP-903).
        """
        follower = self.check_follower(replica_id, leader_epoch)
        if broker_epoch is not None and NO_BROKER_EPOCH < replica_epoch < broker_epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"the fetch has the epoch {replica_epoch} of broker {replica_id}, which has registered again since "
                f"with epoch {broker_epoch}",
            )
        previous_start = follower.log_start_offset
        follower.on_fetch(fetch_offset, log_start_offset, self._offsets.end, now_ms)
        follower.broker_epoch = replica_epoch
        follower.may_join_isr = may_join_isr and replica_epoch in (NO_BROKER_EPOCH, broker_epoch)
        proposed = None
        if follower.may_join_isr:
            proposed = self.replicas.propose_expansion(
                replica_id, self.high_watermark, self._epoch_start_offset
            )
        return Effects(
            high_watermark_moved=self._advance_high_watermark(now_ms),
            # Whatever the others have: nobody waits for a follower that is not alive.
            low_watermark_moved=log_start_offset > previous_start,
            proposed_isr=proposed,
        )

    def on_follower_unavailable(self, replica_id: int, now_ms: int) -> Effects:
        """The follower's broker is fenced or shuts down: records need not wait until it has joined the ISR.

        Nor does DeleteRecords wait for it.
        """
        follower = self.replicas.followers.get(replica_id)
        if follower is None:
            return NO_EFFECTS
        has_moved = False
        if follower.may_join_isr:
            follower.may_join_isr = False
            has_moved = self._advance_high_watermark(now_ms)
        return Effects(high_watermark_moved=has_moved, low_watermark_moved=self._holds_back(follower))

    def is_idle(self, replica_id: int) -> bool:
        """Whether the next fetches of a follower with all records need no `on_fetch`, as long as nothing changes.

        A follower outside of the ISR joins it with a fetch, perhaps not with the first one. One that has not fetched
        under this leader has told nothing yet.
        """
        follower = self.replicas.followers.get(replica_id)
        return (
            follower is not None
            and replica_id in self.replicas.committed
            and follower.log_end_offset == self._offsets.end
        )

    def on_idle_fetches(self, replica_id: int, until_ms: int) -> None:
        """The follower `is_idle`, has fetched again until `until_ms`, and nothing had changed."""
        follower = self.replicas.followers.get(replica_id)
        if follower is not None:
            follower.on_idle_fetches(until_ms)

    def withdraw_isr_proposal(self, now_ms: int) -> Effects:
        """The controller has not accepted the proposal: a later fetch or `tick` may propose again.

        Records that waited for a proposed replica need not wait for it any more.
        """
        self.replicas.withdraw_proposal()
        return self.advance(now_ms)

    def tick(self, now_ms: int) -> Effects:
        """Proposes to remove lagging followers from the ISR. Call it a few times per `replica.lag.time.max.ms`."""
        proposed = self.replicas.propose_shrink(
            self._offsets.end, now_ms, self.settings.replica_lag_time_max_ms
        )
        if proposed is None:
            return self.advance(now_ms)
        return Effects(high_watermark_moved=self._advance_high_watermark(now_ms), proposed_isr=proposed)

    def configure(self, settings: LeaderSettings, now_ms: int) -> Effects:
        """Applies changed configs. A smaller `min.insync.replicas` may commit records."""
        self.settings = settings
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> Effects:
        """Commits what all in-sync replicas have, after a change that is not an append or a fetch, or a while."""
        return HIGH_WATERMARK_MOVED if self._advance_high_watermark(now_ms) else NO_EFFECTS

    def on_isr_committed(
        self,
        isr: Iterable[int],
        partition_epoch: int,
        now_ms: int,
        *,
        replica_ids: Sequence[int] | None = None,
    ) -> Effects:
        """The controller has set the ISR, and perhaps the replicas, without a new leader epoch.

        A smaller ISR may commit records that a lagging follower held back. The partition epoch orders the decisions of
        the controller: one that is not newer than the last one has no effect.
        """
        if partition_epoch <= self.partition_epoch:
            return NO_EFFECTS
        self.partition_epoch = partition_epoch
        previous_isr, previous_followers = self.replicas.committed, self.replicas.followers
        if replica_ids is not None:
            self.replicas.set_replicas(replica_ids)
        self.replicas.commit(isr)
        return Effects(
            isr_changed=self.isr != previous_isr
            or self.replicas.followers.keys() != previous_followers.keys(),
            high_watermark_moved=self._advance_high_watermark(now_ms),
            low_watermark_moved=any(
                self._holds_back(follower)
                for replica_id, follower in previous_followers.items()
                if replica_id not in self.replicas.followers
            ),
        )

    @property
    def isr_proposal(self) -> IsrProposal | None:
        """The proposal that the controller has not decided yet."""
        proposed, followers = self.replicas.proposed, self.replicas.followers
        if proposed is None:
            return None
        isr = tuple(
            (replica_id, followers[replica_id].broker_epoch if replica_id in followers else NO_BROKER_EPOCH)
            for replica_id in proposed
        )
        return IsrProposal(self.leader_epoch, self.partition_epoch, isr)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.replicas.committed

    @property
    def is_under_min_isr(self) -> bool:
        in_sync = len(self.replicas.committed)
        # min.insync.replicas above the replication factor means all replicas.
        return in_sync < self.settings.min_insync_replicas and in_sync <= len(self.replicas.followers)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all replicas. DeleteRecords waits for it."""
        return self.low_watermark_among(lambda replica_id: True)

    def low_watermark_among(self, is_alive: Callable[[int], bool]) -> int:
        """As `low_watermark`, without the followers that are not `is_alive`."""
        low_watermark = self._offsets.start
        for replica_id, follower in self.replicas.followers.items():
            if follower.log_start_offset < low_watermark and is_alive(replica_id):
                low_watermark = follower.log_start_offset
        return low_watermark

    def _holds_back(self, follower: Follower) -> bool:
        """Whether DeleteRecords may wait for the follower."""
        return follower.log_start_offset < self._offsets.start

    def _advance_high_watermark(self, now_ms: int) -> bool:
        replicated = self._offsets.end if self._unflushed_from is None else self._unflushed_from
        if self.replicas.followers:
            # KIP-966: records on fewer than min.insync.replicas replicas are not committed.
            if self.is_under_min_isr:
                return False
            replicated = self.replicas.replicated_offset(
                replicated, now_ms, self.settings.replica_lag_time_max_ms
            )
        if replicated <= self.high_watermark:
            return False
        self.high_watermark = replicated
        self._producers.on_high_watermark(replicated)
        return True

    def _effective_min_isr(self) -> int:
        return min(self.settings.min_insync_replicas, len(self.replicas.followers) + 1)

    def _reject_unknown_follower(self, replica_id: int, leader_epoch: int) -> NoReturn:
        # The follower may know an assignment that this leader does not know yet. If it sent an epoch, it retries.
        code = (
            ErrorCode.not_leader_or_follower
            if leader_epoch == NO_LEADER_EPOCH
            else ErrorCode.unknown_leader_epoch
        )
        raise KafkaError(
            code, f"broker {replica_id} is not a replica of this partition, as far as its leader knows"
        )

    # -- reads

    def check_offsets_available(self) -> None:
        """Raises KafkaError while the high watermark of a new leader is below the start of its epoch (KIP-207).

        Until then the end that clients may see would be before the end that they saw under the previous leader.
        """
        if self.high_watermark < self._epoch_start_offset:
            raise KafkaError(
                ErrorCode.offset_not_available,
                f"the high watermark {self.high_watermark} has not reached offset {self._epoch_start_offset} yet, "
                f"where leader epoch {self.leader_epoch} starts: retry",
            )

    # -- the start of the log

    def check_delete_records(self, offset: int) -> int:
        """The offset that a DeleteRecords request moves the log start to. Raises KafkaError if it may not."""
        if not self.settings.deletes_records:
            raise KafkaError(
                ErrorCode.policy_violation,
                "records of this partition cannot be deleted: its cleanup.policy is only compact",
            )
        if offset == DELETE_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"records cannot be deleted to offset {offset}: it must be between 0 and the high watermark "
                f"{self.high_watermark}",
            )
        return offset

    def on_log_start_moved(self, previous: int) -> Effects:
        """Retention or DeleteRecords may have moved the log start; `previous` is where it was."""
        if self._offsets.start == previous:
            return NO_EFFECTS
        # A follower whose log start is not beyond `previous` holds the low watermark back.
        return Effects(log_start_moved=True, low_watermark_moved=self.low_watermark > previous)
