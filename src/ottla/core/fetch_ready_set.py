"""The partitions of a fetch that may have something to say: a fetch costs what has changed, not what it names.

A partition that was read and had nothing leaves the ready set. It comes back when the client changes its request for
it, or when the hosted partition that it watches changes. While it is away it is idle: each fetch of the session still
counts as a fetch of it, but nothing looks at it.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Protocol
from uuid import UUID

from ottla.model.ids import NO_OFFSET
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import FetchPartition, FetchPartitionResponse

NO_REPLICA = -1

_in_reading_order = attrgetter("position")


class Watched(Protocol):
    """The partition of this broker that a session partition reads."""

    def watch(self, watcher: "SessionPartition") -> None:
        """From now on, calls `watcher.mark` when a fetch may find something else than before."""

    def unwatch(self, watcher: "SessionPartition") -> None: ...

    def follower_kept_fetching(self, replica_id: int, until_ms: int) -> None:
        """Nothing has changed since the follower's last fetch that was counted; it has fetched until `until_ms`."""


class SessionTopic:
    """A topic as the client identifies it: by name up to Fetch v12, by id from v13."""

    __slots__ = ("__weakref__", "name", "partitions", "topic_id")

    def __init__(self, name: str | None, topic_id: UUID | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, SessionPartition] = {}


class SessionPartition:
    """A partition to read: the client's request for it, and the offsets that it was last sent.

    The reader keeps the hosted partition here to avoid a lookup per fetch. `is_settled` means that the last read found
    nothing that will not be in its response, and that nothing has changed since.
    """

    __slots__ = (
        "high_watermark",
        "hosted",
        "is_settled",
        "is_watching",
        "log_start_offset",
        "position",
        "ready_set",
        "request",
        "topic",
    )

    def __init__(self, topic: SessionTopic, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self.hosted: Watched | None = None
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.is_watching = False
        self.is_settled = False
        self.position = 0
        self.ready_set: ReadySet | None = None

    def has_news(self, response: FetchPartitionResponse) -> bool:
        """Whether the client does not know all of `response`."""
        return (
            response.high_watermark != self.high_watermark
            or response.log_start_offset != self.log_start_offset
            or response.error_code != 0
            or response.preferred_read_replica >= 0
            or response.diverging_epoch is not None
            or has_records(response)
        )

    def update_sent(self, response: FetchPartitionResponse) -> bool:
        """Remembers what is sent to the client; returns whether any of it is new to the client."""
        if not self.has_news(response):
            return False
        # After an error the next response must contain the partition again, even if nothing else has changed. So must
        # it after a diverging epoch: a follower truncates its log, and takes the high watermark from the next response.
        is_taken = response.error_code == 0 and response.diverging_epoch is None
        self.high_watermark = response.high_watermark if is_taken else NO_OFFSET
        self.log_start_offset = response.log_start_offset
        return True

    def mark(self) -> None:
        """The hosted partition has changed: the next fetch must read it."""
        if self.ready_set is not None:
            self.ready_set.mark(self)

    def release(self) -> None:
        """The hosted partition is closed: the next read looks for another one."""
        if self.ready_set is not None:
            self.ready_set.release(self)


PartitionResult = tuple[SessionPartition, FetchPartitionResponse]


class ReadySet:
    """The ready partitions among those that a client fetches, in an order in which none starves.

    `on_ready` is called with this object when a partition becomes ready, and when the set is closed. A fetch that waits
    then looks at the ready partitions.
    """

    __slots__ = (
        "_fetcher",
        "_next_position",
        "_replica_id",
        "_watched",
        "changes",
        "is_closed",
        "last_used_ms",
        "on_ready",
        "ready",
    )

    def __init__(self) -> None:
        self.ready: dict[SessionPartition, None] = {}  # an ordered set
        self.last_used_ms = 0
        self.changes = 0  # counts the calls of `mark`
        self.is_closed = False
        self.on_ready: Callable[[ReadySet], object] | None = None
        self._next_position = 0
        self._watched: dict[Watched, SessionPartition] = {}
        self._replica_id = NO_REPLICA
        self._fetcher: object = None

    def ready_partitions(self) -> list[SessionPartition]:
        """In reading order."""
        return sorted(self.ready, key=_in_reading_order) if len(self.ready) > 1 else list(self.ready)

    def place_last(self, partition: SessionPartition) -> None:
        """Reads the partition after all others from now on."""
        partition.position = self._next_position
        self._next_position += 1

    def add(self, partition: SessionPartition) -> None:
        partition.ready_set = self
        self.place_last(partition)
        self.ready[partition] = None

    def remove(self, partition: SessionPartition) -> None:
        self._unwatch(partition)
        self.ready.pop(partition, None)
        partition.ready_set = None

    def watch(self, partition: SessionPartition, hosted: Watched) -> None:
        """The reader has found `hosted`. A client that names a partition twice in one request has one watch for it."""
        if partition.is_watching:
            self._unwatch(partition)
        partition.hosted = hosted
        if self.is_closed or hosted in self._watched:
            return
        partition.ready_set = self
        partition.is_watching = True
        self._watched[hosted] = partition
        hosted.watch(partition)

    def identify(self, replica_id: int, fetcher: object) -> None:
        """Says who fetches, and all that a read depends on besides the partition. If it is new, all are read again."""
        if fetcher != self._fetcher:
            for partition in self._watched.values():
                self.leave_idle(partition)
            self._replica_id, self._fetcher = replica_id, fetcher

    def leave_idle(self, partition: SessionPartition) -> None:
        """The next fetch must read the partition.

        The follower was caught up as long as nothing has changed: its fetches until now count for the ISR.
        """
        partition.is_settled = False
        if partition not in self.ready:
            self.ready[partition] = None
            if self._replica_id != NO_REPLICA and partition.hosted is not None:
                partition.hosted.follower_kept_fetching(self._replica_id, self.last_used_ms)

    def mark(self, partition: SessionPartition) -> None:
        self.leave_idle(partition)
        self.changes += 1
        if self.on_ready is not None:
            self.on_ready(self)

    def release(self, partition: SessionPartition) -> None:
        self._unwatch(partition)
        self.mark(partition)

    def settle(self, partition: SessionPartition) -> None:
        """The client knows all that the last read found, unless the partition has changed since."""
        if partition.is_settled:
            self.ready.pop(partition, None)
        else:
            self.ready[partition] = None

    def close(self) -> None:
        """Ends all watches, and wakes a fetch that waits."""
        self.is_closed = True
        for partition in list(self._watched.values()):
            self._unwatch(partition)
            partition.ready_set = None
        if self.on_ready is not None:
            self.on_ready(self)

    def _unwatch(self, partition: SessionPartition) -> None:
        hosted = partition.hosted
        if hosted is not None and partition.is_watching:
            self.leave_idle(partition)
            hosted.unwatch(partition)
            self._watched.pop(hosted, None)
        partition.hosted, partition.is_watching = None, False


def has_records(response: FetchPartitionResponse) -> bool:
    records = response.records
    if records is None:
        return False
    return (records.length if isinstance(records, FileRegion) else len(records)) > 0
