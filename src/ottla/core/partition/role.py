"""What the leader and a follower of a partition have in common: the epochs, the high watermark, and the rules of reads.

A role lives for one leader epoch and is replaced as a whole. Whoever waits for something waits for a role: an offset
alone could be reached by other records under a later leader.
"""

from ottla.core.partition.epochs import LeaderEpochCache, leader_epoch_error
from ottla.core.partition.log_offsets import LogOffsets
from ottla.core.partition.producers import ProducerStateTable
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET

READ_COMMITTED = 1


class PartitionRole:
    def __init__(
        self,
        offsets: LogOffsets,
        producers: ProducerStateTable,
        epochs: LeaderEpochCache,
        *,
        leader_epoch: int,
        partition_epoch: int,
        high_watermark: int,
    ) -> None:
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.high_watermark = high_watermark
        self._offsets = offsets
        self._producers = producers
        self._epochs = epochs
        # A log that was just loaded knows which transactions have ended, but not how far they are replicated.
        producers.on_high_watermark(high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """All transactions before this offset have ended. Never above the high watermark."""
        first_unstable = self._producers.first_unstable_offset()
        if first_unstable is None:
            return self.high_watermark
        return min(max(first_unstable, self._offsets.start), self.high_watermark)

    def fetch_limit(self, isolation_level: int, *, is_follower: bool) -> int:
        """The offset before which a fetch must end."""
        if is_follower:
            return self._offsets.end
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def check_epoch(self, current_leader_epoch: int) -> None:
        """KIP-320: rejects a client whose leader epoch is older or newer than the present one. -1 skips the check."""
        if current_leader_epoch == self.leader_epoch or current_leader_epoch == NO_LEADER_EPOCH:
            return
        raise leader_epoch_error(current_leader_epoch, self.leader_epoch)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """The (epoch, end offset) to truncate to, if the fetcher's log has diverged from this one (KIP-595)."""
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end_offset = self._epochs.end_offset_for(last_fetched_epoch, self._offsets.end)
        if end_offset == NO_OFFSET:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"the end of the last fetched epoch {last_fetched_epoch} is not known here",
            )
        if fetch_offset < self._offsets.start:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {fetch_offset} is before the log, which has {self._offsets.start} to "
                f"{self._offsets.end}",
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None


def trusted_high_watermark(
    checkpointed: int, *, replicas: int, was_closed_cleanly: bool, leads_alone: bool = False
) -> int:
    """The high watermark with which a replica opens its log.

    After a power loss the disk may have the records of before a truncation, below the checkpointed high watermark. So
    nobody may read them from this replica until it has compared its log with that of the leader. If it becomes the
    leader itself, its followers tell what is committed. Unless it `leads_alone`: then no other replica can be elected
    without a copy of its log. And if its high watermark began at 0, it would stay there while there are fewer than
    min.insync.replicas (KIP-966), and nobody could read any record.
    """
    return checkpointed if was_closed_cleanly or replicas == 1 or leads_alone else 0
