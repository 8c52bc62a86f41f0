"""The rules of a partition's follower: what is committed, as far as its leader has said."""

from ottla.core.partition.effects import HIGH_WATERMARK_MOVED, NO_EFFECTS, Effects
from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.log_offsets import LogOffsets
from ottla.core.partition.producers import ProducerStateTable
from ottla.core.partition.role import PartitionRole
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import BatchHeader, scan_complete_batches

# A batch with its bytes, as a part of a log.
FetchedBatch = tuple[BatchHeader, tuple[memoryview]]


class PartitionFollower(PartitionRole):
    """`leader_id` is -1 while the partition has no leader: there is nothing to fetch from then."""

    def __init__(
        self,
        offsets: LogOffsets,
        producers: ProducerStateTable,
        epochs: LeaderEpochCache,
        *,
        leader_epoch: int,
        leader_id: int,
        partition_epoch: int,
        high_watermark: int,
    ) -> None:
        super().__init__(
            offsets,
            producers,
            epochs,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            high_watermark=high_watermark,
        )
        self.leader_id = leader_id
        self._leader_high_watermark: int | None = None  # not known before the first fetch

    @property
    def is_caught_up(self) -> bool:
        """Whether it has all that its leader had committed at the last fetch."""
        leaders = self._leader_high_watermark
        return leaders is not None and self._offsets.end >= leaders

    def restart_offset(self, records: memoryview) -> int | None:
        """The offset at which an empty log must start again, so that `records` fit behind its end; None if they fit.

        DeleteRecords (KIP-107) may move the start of the leader's log into a batch. The leader sends the batch as a
        whole, and it begins before the offset that this follower asked for.
        """
        end_offset = self._offsets.end
        if self._offsets.start != end_offset:
            return None
        for first in scan_complete_batches(records):
            is_accepted = first.partition_leader_epoch <= self.leader_epoch
            is_inside = first.base_offset < end_offset < first.next_offset
            return first.base_offset if is_accepted and is_inside else None
        return None

    def accept(self, records: memoryview) -> list[FetchedBatch]:
        """The batches of the leader's response to append. The response may end inside a batch, which comes again later.

        Batches of a later epoch than this follower's are left out: the leader has been elected again meanwhile, and the
        follower must check in that epoch first whether its log has diverged. Raises KafkaError if a batch is damaged,
        or is not behind the end of the log.
        """
        accepted: list[FetchedBatch] = []
        end_offset, position = self._offsets.end, 0
        for header in scan_complete_batches(records):
            if header.partition_leader_epoch > self.leader_epoch:
                break
            if header.base_offset < end_offset:
                raise KafkaError(
                    ErrorCode.corrupt_message,
                    f"the leader sent a batch with offset {header.base_offset}, but the log ends at {end_offset}",
                )
            accepted.append((header, (records[position : position + header.size],)))
            position += header.size
            end_offset = header.next_offset
        return accepted

    def on_fetched(self, leader_high_watermark: int, leader_log_start_offset: int) -> Effects:
        """A response of the leader was appended to the log, and said how far the leader's log is committed.

        A new leader's high watermark may be behind the one that this replica knows: it does not move back. The log
        start follows the leader's, up to the high watermark: records that are not committed are never deleted.
        """
        self._leader_high_watermark = leader_high_watermark
        committed = min(leader_high_watermark, self._offsets.end)
        has_moved = committed > self.high_watermark
        if has_moved:
            self.high_watermark = committed
            self._producers.on_high_watermark(committed)
        start = min(leader_log_start_offset, self.high_watermark)
        if start > self._offsets.start:
            return Effects(high_watermark_moved=has_moved, delete_before=start)
        return HIGH_WATERMARK_MOVED if has_moved else NO_EFFECTS

    def on_truncated(self) -> None:
        """The log was truncated, and may end before the high watermark or start after it."""
        self.high_watermark = min(max(self.high_watermark, self._offsets.start), self._offsets.end)
        self._producers.on_high_watermark(self.high_watermark)

    def on_log_start_moved(self, previous: int) -> Effects:
        """Retention may have moved the log start; `previous` is where it was."""
        return NO_EFFECTS if self._offsets.start == previous else Effects(log_start_moved=True)

    def on_flushed(self, end_offset: int, now_ms: int) -> Effects:
        """A follower commits nothing by itself."""
        return NO_EFFECTS
