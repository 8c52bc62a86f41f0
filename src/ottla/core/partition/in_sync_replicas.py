"""How far each follower of a partition has copied the leader's log, and which of them are in sync.

A record is committed when all in-sync replicas have it. The leader proposes the ISR and the controller decides
(AlterPartition, KIP-497). Until the controller has decided, the larger of the two sets limits the high watermark.
"""

from collections.abc import Iterable, Sequence

from ottla.model.ids import NO_OFFSET


class Follower:
    """What the leader knows of one follower from its fetches."""

    __slots__ = (
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_fetch_ms = 0
        self.last_caught_up_ms = last_caught_up_ms

    def on_fetch(self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A follower that now has everything that the leader had at its previous fetch was caught up at that time.

        Without this rule a follower would never count as caught up while the leader appends all the time.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_end_offset = max(self.last_fetch_leader_end_offset, leader_end_offset)
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class InSyncReplicas:
    """The committed ISR, the proposed one if the controller has not decided yet, and the followers' progress."""

    def __init__(self, *, local_id: int, replica_ids: Sequence[int], isr: Iterable[int], now_ms: int) -> None:
        self.committed = tuple(isr)
        self.proposed: tuple[int, ...] | None = None
        # In-sync followers get the whole lag time to start fetching from a new leader; the others must fetch first.
        self.followers = {
            replica_id: Follower(now_ms if replica_id in self.committed else 0)
            for replica_id in replica_ids
            if replica_id != local_id
        }

    @property
    def maximal(self) -> tuple[int, ...]:
        """The larger of the committed and the proposed set: safe for the high watermark, whatever is decided."""
        if self.proposed is not None and len(self.proposed) > len(self.committed):
            return self.proposed
        return self.committed

    def replicated_offset(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> int:
        """The offset up to which all in-sync replicas have the log.

        Followers that are caught up but not in the ISR count too. Otherwise the high watermark could stay ahead of
        such a follower forever, and it would never join the ISR.
        """
        replicated = leader_end_offset
        isr = self.maximal
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < replicated and (
                replica_id in isr or follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms)
            ):
                replicated = follower.log_end_offset
        return replicated

    def propose_expansion(
        self, replica_id: int, high_watermark: int, epoch_start_offset: int
    ) -> tuple[int, ...] | None:
        """A follower joins the ISR when it has reached the high watermark and the start of the leader's epoch.

        The second condition keeps out a replica whose log may still hold records of an older leader.
        """
        if self.proposed is not None or replica_id in self.committed:
            return None
        if self.followers[replica_id].log_end_offset < max(high_watermark, epoch_start_offset):
            return None
        self.proposed = (*self.committed, replica_id)
        return self.proposed

    def propose_shrink(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> tuple[int, ...] | None:
        """Removes followers that were not caught up at any time in the last `replica.lag.time.max.ms`."""
        if self.proposed is not None or not self.followers:
            return None
        lagging = [
            replica_id
            for replica_id, follower in self.followers.items()
            if not follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms)
        ]
        remaining = tuple(replica_id for replica_id in self.committed if replica_id not in lagging)
        if len(remaining) == len(self.committed):
            return None
        self.proposed = remaining
        return remaining

    def commit(self, isr: Iterable[int]) -> None:
        """Sets the ISR that the controller decided, whatever was proposed."""
        self.committed = tuple(isr)
        self.proposed = None

    def withdraw_proposal(self) -> None:
        """The controller rejected the proposal or was not reached: a later fetch or tick may propose again."""
        self.proposed = None
