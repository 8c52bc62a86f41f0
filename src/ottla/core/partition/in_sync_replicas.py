"""How far each follower of a partition has copied the leader's log, and which of them are in sync.

A record is committed when all in-sync replicas have it. The leader proposes the ISR and the controller decides
(AlterPartition, KIP-497). Until the controller has decided, the larger of the two sets limits the high watermark.
"""

from collections.abc import Iterable, Sequence

from ottla.model.ids import NO_OFFSET

# A fetch without a replica epoch (before Fetch v15), or a follower that has not fetched yet (KIP-903).
NO_BROKER_EPOCH = -1
# Times are those of a monotonic clock, which may have started a moment ago: 0 would not be long ago.
NEVER_MS = -(1 << 62)


class Follower:
    """What the leader knows of one follower from its fetches."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "may_join_isr",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_start_offset = NO_OFFSET
        self.log_end_offset = NO_OFFSET
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = last_caught_up_ms
        self.broker_epoch = NO_BROKER_EPOCH  # of its last fetch
        # Whether it was active at its last fetch, and nothing has ended that since.
        self.may_join_isr = False

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

    def on_idle_fetches(self, until_ms: int) -> None:
        """The follower had all records at its last fetch, has fetched again until `until_ms`, and there was no change.

        Such fetches are not counted one by one. Without this a follower of an idle partition would seem to lag as soon
        as the next record is appended. A follower that has not fetched under this leader has told nothing.
        """
        if self.log_end_offset == NO_OFFSET:
            return
        self.last_caught_up_ms = max(self.last_caught_up_ms, until_ms)
        self.last_fetch_ms = max(self.last_fetch_ms, until_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms


class InSyncReplicas:
    """The committed ISR, the proposed one if the controller has not decided yet, and the followers' progress."""

    def __init__(self, *, local_id: int, replica_ids: Sequence[int], isr: Iterable[int], now_ms: int) -> None:
        self.committed = tuple(isr)
        self.proposed: tuple[int, ...] | None = None
        self._local_id = local_id
        # In-sync followers get the whole lag time to start fetching from a new leader; the others must fetch first.
        self.followers = {
            replica_id: Follower(now_ms if replica_id in self.committed else NEVER_MS)
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

        Followers that are caught up and may join the ISR count too. Otherwise the high watermark could stay ahead of
        such a follower forever, and it would never join. One that may not join, because its broker is fenced or shuts
        down, must not count: it would hold up every acks=all until `replica.lag.time.max.ms` is over (KIP-841).
        """
        replicated = leader_end_offset
        isr = self.maximal
        for replica_id, follower in self.followers.items():
            if follower.log_end_offset < replicated and (
                replica_id in isr
                or (follower.may_join_isr and follower.is_caught_up(leader_end_offset, now_ms, lag_max_ms))
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

    def set_replicas(self, replica_ids: Sequence[int]) -> None:
        """A reassignment added or removed replicas. The others keep their progress."""
        self.followers = {
            replica_id: self.followers.get(replica_id) or Follower(NEVER_MS)
            for replica_id in replica_ids
            if replica_id != self._local_id
        }

    def commit(self, isr: Iterable[int]) -> None:
        """Sets the ISR that the controller decided, whatever was proposed.

        A follower that has left it is fenced, shuts down or lags: it must fetch again before it counts.
        """
        isr = tuple(isr)
        for replica_id in self.committed:
            if replica_id not in isr and replica_id in self.followers:
                self.followers[replica_id].may_join_isr = False
        self.committed = isr
        self.proposed = None

    def withdraw_proposal(self) -> None:
        """The controller rejected the proposal or was not reached: a later fetch or tick may propose again."""
        self.proposed = None
