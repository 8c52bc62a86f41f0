"""Raft's view of its log: start and end offset, the first offset of each epoch, and the snapshots."""

from dataclasses import dataclass, field
from typing import NamedTuple


class OffsetAndEpoch(NamedTuple):
    """The end of a log or snapshot: the offset after its last record, and the epoch of that record."""

    offset: int
    epoch: int

    def is_up_to_date_with(self, other: "OffsetAndEpoch") -> bool:
        """Raft, 5.4.1: a later epoch wins; in the same epoch, the longer log."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


class Position(NamedTuple):
    """Whether a follower's log is a prefix of this one (neither field is set), has diverged, or needs a snapshot."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


IN_LOG = Position()


@dataclass
class LogState:
    """`epochs` has (epoch, first offset), ascending, for the records from `start_offset` to `end_offset`.

    No snapshot ends before `start_offset`; unless that is 0, the oldest one ends there.
    """

    start_offset: int = 0
    end_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs[-1][0]
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def append(self, epoch: int, next_offset: int) -> None:
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, self.end_offset))
        self.end_offset = next_offset

    def truncate_to(self, offset: int) -> None:
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()
        self.end_offset = offset

    def install(self, snapshot: OffsetAndEpoch) -> None:
        """Replaces the whole log, and the snapshots before, by the snapshot."""
        self.snapshots = [snapshot]
        self.start_offset = self.end_offset = snapshot.offset
        self.epochs.clear()

    def discard_before(self, offset: int) -> None:
        """Removes the records before `offset`, which a snapshot has, and older snapshots."""
        self.start_offset = offset
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.offset >= offset]
        covering = [entry for entry in self.epochs if entry[1] <= offset][-1:]
        self.epochs = [(epoch, offset) for epoch, _ in covering] + [
            entry for entry in self.epochs if entry[1] > offset
        ]
        if self.end_offset == offset:
            self.epochs.clear()

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the largest epoch in this log that is not above `epoch`."""
        if epoch >= self.last_epoch:
            return self.end
        known = [number for number, _ in self.epochs]
        below = [index for index, number in enumerate(known) if number <= epoch]
        if below:
            return OffsetAndEpoch(self.epochs[below[-1] + 1][1], known[below[-1]])
        if self.snapshots:
            return self.snapshots[0]
        return OffsetAndEpoch(self.start_offset, 0)

    def position_of(self, offset: int, last_epoch: int) -> Position:
        """The position of a follower whose log ends at `offset`, with a last record from `last_epoch`."""
        newest = self.snapshots[-1] if self.snapshots else None
        # A snapshot at offset 0, as a formatted directory has it, has no records: an empty follower would ask for it
        # for ever. The first leader writes its voters to the log (KIP-853).
        is_useful = newest is not None and newest.offset > 0
        if is_useful and (offset == 0 or self._is_before_snapshots(offset, last_epoch)):
            # KIP-630. An empty follower gets the snapshot too, because it is smaller than the log.
            return Position(snapshot=newest)
        end = self.end_of_epoch(last_epoch)
        if offset == 0 and self.start_offset == 0:
            return IN_LOG
        if end.epoch != last_epoch or end.offset < offset:
            return Position(diverging=end)
        return IN_LOG

    def _is_before_snapshots(self, offset: int, last_epoch: int) -> bool:
        oldest = self.snapshots[0]
        if offset < self.start_offset or last_epoch < oldest.epoch:
            return True
        return offset == self.start_offset != 0 and last_epoch != oldest.epoch

    def truncation_for(self, diverging: OffsetAndEpoch) -> int:
        """The offset to truncate to if the leader's log ends at `diverging` in that epoch."""
        end = self.end_of_epoch(diverging.epoch)
        if end.epoch == diverging.epoch:
            return min(end.offset, diverging.offset)
        return end.offset
