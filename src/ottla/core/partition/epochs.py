"""Which leader epoch wrote which offsets of a log (KIP-101).

Followers and consumers ask where an epoch ended, to find the offset at which their log and the leader's diverge
(KIP-279, KIP-320). Epochs and their start offsets only grow.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET


class LeaderEpochCache:
    """Methods that change the cache return whether they did, so that its owner knows when to write the checkpoint."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []

    @property
    def latest(self) -> int | None:
        """The epoch of the last entry."""
        return self._epochs[-1] if self._epochs else None

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def load(self, entries: Iterable[tuple[int, int]]) -> None:
        self.clear()
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def clear(self) -> None:
        self._epochs.clear()
        self._start_offsets.clear()

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Sets the start offset of `epoch` and removes entries that contradict it."""
        epochs, start_offsets = self._epochs, self._start_offsets
        if epochs and epoch == epochs[-1] and start_offset >= start_offsets[-1]:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(
                f"leader epoch {epoch} cannot start at offset {start_offset}: neither may be negative"
            )
        keep = min(bisect_left(epochs, epoch), bisect_left(start_offsets, start_offset))
        self._keep_first(keep)
        epochs.append(epoch)
        start_offsets.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch that is not above `epoch`, and its end offset; (-1, -1) if there is none.

        An epoch older than all known ones ends where the first known one starts: its records are deleted here, and a
        follower that still has them must continue from there.
        """
        epochs = self._epochs
        if epochs and epoch == epochs[-1]:
            return epoch, log_end_offset
        following = bisect_right(epochs, epoch)
        if epoch == NO_LEADER_EPOCH or following == len(epochs):
            return NO_LEADER_EPOCH, NO_OFFSET
        found = epochs[following - 1] if following else epoch
        return found, self._start_offsets[following]

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote the record at `offset`; None before the first known epoch."""
        following = bisect_right(self._start_offsets, offset)
        return self._epochs[following - 1] if following else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log now ends at `end_offset`: removes epochs that started there or later."""
        keep = bisect_left(self._start_offsets, end_offset)
        if keep == len(self._epochs):
            return False
        self._keep_first(keep)
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now starts at `start_offset`: removes older epochs; the epoch at that offset now starts there."""
        following = bisect_right(self._start_offsets, start_offset)
        if following == 0 or (following == 1 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[: following - 1]
        del self._start_offsets[: following - 1]
        self._start_offsets[0] = start_offset
        return True

    def _keep_first(self, count: int) -> None:
        del self._epochs[count:]
        del self._start_offsets[count:]


def leader_epoch_error(requested: int, current: int) -> KafkaError:
    """The error for a request whose leader epoch is not the present one (KIP-320)."""
    if requested < current:
        return KafkaError(
            ErrorCode.fenced_leader_epoch,
            f"the request is for leader epoch {requested}, the present one is {current}: refresh the metadata",
        )
    return KafkaError(
        ErrorCode.unknown_leader_epoch,
        f"the request is for leader epoch {requested}, newer than {current}, the newest that this broker knows of: "
        "retry",
    )
