"""Reads the partitions of a fetch request within its limits.

The limits are Kafka's: a partition returns at most its own maximum, and the response at most `max_bytes`. The first
batch of the first partition that has records is returned whole, whatever its size, so that a consumer always makes
progress (KIP-74).
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.hosted_partition import FollowerState, HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.broker.promise import Promise
from ottla.broker.services import MetadataCache
from ottla.broker.topic_counters import TopicCounters
from ottla.core.fetch_ready_set import PartitionResult, SessionPartition
from ottla.core.fetch_session import FetchContext
from ottla.core.partition.leader import PartitionLeader
from ottla.core.partition.replica_selector import preferred_replica
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.env.clock import Clock
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
)
from ottla.storage.segments import ColdLookup, LogSlice

# More partitions are read in slices. A follower's fetch takes longer, because it moves the high watermark.
LARGE_FETCH_PARTITIONS = 5_000
LARGE_FOLLOWER_FETCH_PARTITIONS = 500


# The client finds the new leader in the response (KIP-951).
_WITH_LEADER_HINT = (int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch))


class FetchRead(NamedTuple):
    """The results of all partitions of a request. `leaders` are the ids of the leaders that are named in errors.

    An urgent result is sent at once, whatever its size. The regions in `maybe_cold` may not be in the page cache. If
    there are `cold_lookups` the results are incomplete: run them in a thread and read again. `throttled_bytes` count
    against the quota of replication when they are sent. `taken` has the bytes of records of each partition.
    """

    results: list[PartitionResult]
    size: int
    is_urgent: bool
    maybe_cold: list[FileRegion]
    cold_lookups: list[ColdLookup]
    leaders: Collection[int]
    throttled_bytes: int
    taken: Sequence[tuple[TopicCounters, int]]


NOTHING_READ = FetchRead([], 0, False, [], [], (), 0, ())


class FetchReader:
    """Reads the partitions of one request, once or repeatedly. A follower's fetch counts once for each partition.

    If the request has a ready set, a read watches the partitions first, so that no later change is missed, and tells
    which partitions are settled.
    """

    def __init__(
        self,
        host: PartitionHost,
        request: FetchRequest,
        context: FetchContext,
        max_bytes: int,
        clock: Clock,
        metadata: MetadataCache,
        throttle: ReplicationThrottle,
        *,
        may_read_followers: bool = False,
        client_rack: str = "",
    ) -> None:
        """`may_read_followers`: the client knows that it may read from replicas that do not lead (KIP-392).

        With a `client_rack` it is sent to a replica in its rack, if there is one.
        """
        self._may_read_followers = may_read_followers
        self._client_rack = client_rack
        self._host = host
        self._clock = clock
        self._metadata = metadata
        self._request = request
        self._context = context
        self._max_bytes = max_bytes
        self._is_follower = request.replica_id >= 0
        self._throttle = throttle if self._is_follower and throttle.is_active else None
        self._counts = self._is_follower
        self._counted: set[SessionPartition] = set()
        self._ready_set = ready_set = context.ready_set
        if ready_set is not None:
            ready_set.identify(request.replica_id, self._state())

    def read(self, *, may_block: bool = True) -> FetchRead:
        """Reads what a response needs. Loads the indexes of old segments only if `may_block` is set."""
        self._begin(may_block)
        return self._finish([self._read_or_error(partition) for partition in self._context.partitions])

    def stop_counting(self) -> None:
        """The fetch waits from now on. It has counted when it came, also for idle partitions, by the session's time.

        When it comes back from purgatory, the follower may have sent the next one on another connection.
        """
        self._counts = False

    def read_ready(self) -> FetchRead:
        """Reads the ready partitions only, also if a response needs all of them."""
        assert self._ready_set is not None
        self._begin(may_block=True)
        return self._finish(
            [self._read_or_error(partition) for partition in self._ready_set.ready_partitions()]
        )

    def read_in_slices(self, scheduler: FairScheduler, *, may_block: bool = True) -> Promise[FetchRead]:
        self._begin(may_block)
        return scheduler.run(tuple(self._context.partitions), self._read_in_slice).then(self._finish)

    def _read_in_slice(self, partition: SessionPartition) -> PartitionResult:
        if self._context.is_over:
            self._ready_set = None  # it belongs to a later request, or to nobody
        return self._read_or_error(partition)

    def _begin(self, may_block: bool) -> None:
        self._may_block = may_block
        self._cold_lookups: list[ColdLookup] = []
        self._left = self._max_bytes
        self._size = 0
        self._maybe_cold: list[FileRegion] = []
        self._is_urgent = False
        self._leaders: dict[int, None] = {}  # an ordered set
        self._throttled_bytes = 0
        self._taken: list[tuple[TopicCounters, int]] = []
        self._is_quota_exceeded = (
            self._throttle is not None and self._throttle.wait_ms(self._clock.monotonic_ms()) > 0
        )

    def _finish(self, results: list[PartitionResult]) -> FetchRead:
        return FetchRead(
            results,
            self._size,
            self._is_urgent,
            self._maybe_cold,
            self._cold_lookups,
            self._leaders,
            self._throttled_bytes,
            self._taken,
        )

    def _read_or_error(self, partition: SessionPartition) -> PartitionResult:
        try:
            response = self._read_partition(partition)
        except KafkaError as error:
            response = self._error_response(partition, int(error.code))
            self._is_urgent = True
        except ColdLookup as lookup:
            response = FetchPartitionResponse(partition.request.index, 0)
            self._cold_lookups.append(lookup)
        return partition, response

    def _error_response(self, partition: SessionPartition, code: int) -> FetchPartitionResponse:
        request, topic = partition.request, partition.topic
        leader = None
        if code in _WITH_LEADER_HINT:
            leader = self._host.current_leader(topic.name, topic.topic_id, request.index)
            if leader is not None:
                self._leaders[leader.leader_id] = None
        return FetchPartitionResponse(request.index, code, current_leader=leader)

    def _read_partition(self, partition: SessionPartition) -> FetchPartitionResponse:
        request = partition.request
        partition.is_settled = False
        hosted: HostedPartition | None = partition.hosted  # type: ignore[assignment]
        if hosted is None or hosted.is_closed or not (partition.is_watching or self._ready_set is None):
            hosted = self._find(partition)
        role = hosted.role
        if request.current_leader_epoch != NO_LEADER_EPOCH:
            role.check_epoch(request.current_leader_epoch)
        leader = role if isinstance(role, PartitionLeader) else None
        if leader is None:
            if self._is_follower or not self._may_read_followers:
                raise hosted.not_leader()
        elif self._is_follower:
            leader.check_follower(self._request.replica_id, request.current_leader_epoch)
        elif self._client_rack and leader.replicas.followers:
            preferred = self._preferred_replica(leader, request.fetch_offset)
            if preferred is not None:
                self._is_urgent = True
                return _without_records(request.index, hosted)._replace(preferred_read_replica=preferred)
        if request.last_fetched_epoch >= 0:
            diverging = role.diverging_epoch(request.last_fetched_epoch, request.fetch_offset)
            if diverging is not None:
                self._is_urgent = True
                return _without_records(request.index, hosted)._replace(
                    diverging_epoch=EpochEndOffset(*diverging)
                )
        if leader is None:
            return self._read_from_follower(partition, hosted)
        is_throttled = self._throttle is not None and self._is_throttled(hosted, leader)
        is_held_back = is_throttled and self._is_quota_exceeded
        high_watermark, last_stable_offset, log_start_offset, found, aborted = hosted.fetch(
            request.fetch_offset,
            0 if is_held_back else min(request.max_bytes, self._left),
            isolation_level=self._request.isolation_level,
            is_follower=self._is_follower,
            at_least_one=self._size == 0 and not is_held_back,
            may_block=self._may_block,
        )
        if self._counts and partition not in self._counted:
            # After the read: a fetch that failed or diverged says nothing about the follower's log.
            hosted.follower_fetched(
                leader, self._request.replica_id, request, self._follower_state(), self._clock.monotonic_ms()
            )
            self._counted.add(partition)
            high_watermark = leader.high_watermark
        records: bytes | FileRegion = b""
        if found is not None:
            records = self._take(hosted, found)
            if is_throttled:
                self._throttled_bytes += found.region.length
        elif partition.is_watching and self._ready_set is not None:
            partition.is_settled = (
                leader.is_idle(self._request.replica_id)
                if self._is_follower
                else not (self._client_rack and self._may_prefer_another(leader))
            )
        return FetchPartitionResponse(
            request.index, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1, records
        )

    def _take(self, hosted: HostedPartition, found: LogSlice) -> bytes | FileRegion:
        """Adds the records to the response, and counts them."""
        region = found.region
        length = region.length
        if not length:
            return b""
        self._size += length
        self._taken.append((hosted.counters, length))
        self._left = max(0, self._left - length)
        if not found.is_hot:
            self._maybe_cold.append(region)
        return region

    def _is_throttled(self, hosted: HostedPartition, leader: PartitionLeader) -> bool:
        """Replicas that are in sync are never throttled: producers wait for them (KIP-73)."""
        assert self._throttle is not None
        return self._request.replica_id not in leader.isr and self._throttle.covers(hosted.topic_partition)

    def _read_from_follower(
        self, partition: SessionPartition, hosted: HostedPartition
    ) -> FetchPartitionResponse:
        """A consumer reads what this follower knows to be committed."""
        request = partition.request
        result = hosted.fetch(
            request.fetch_offset,
            min(request.max_bytes, self._left),
            isolation_level=self._request.isolation_level,
            is_follower=False,
            at_least_one=self._size == 0,
            may_block=self._may_block,
        )
        records: bytes | FileRegion = b""
        if result.found is not None:
            records = self._take(hosted, result.found)
        elif partition.is_watching and self._ready_set is not None:
            partition.is_settled = True
        return FetchPartitionResponse(
            request.index,
            0,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            result.aborted,
            -1,
            records,
        )

    def _preferred_replica(self, leader: PartitionLeader, fetch_offset: int) -> int | None:
        return preferred_replica(leader, self._host.node_id, fetch_offset, self._client_rack, self._racks())

    def _may_prefer_another(self, leader: PartitionLeader) -> bool:
        """Whether the progress of a follower can make it the preferred replica. That marks no session."""
        racks, rack = self._racks(), self._client_rack
        return racks.get(self._host.node_id) != rack and any(
            racks.get(replica_id) == rack for replica_id in leader.replicas.followers
        )

    def _racks(self) -> dict[int, str]:
        brokers = self._metadata.image.brokers.values()
        return {broker.broker_id: broker.rack for broker in brokers if broker.rack and broker.is_active}

    def _state(self) -> object:
        """All that a read depends on besides the partition and the request for it."""
        if self._is_follower:
            return self._request.replica_id, self._follower_state()
        if self._client_rack:
            return self._request.isolation_level, self._client_rack, self._metadata.image.brokers
        return self._request.isolation_level, self._may_read_followers

    def _follower_state(self) -> FollowerState:
        broker = self._metadata.image.brokers.get(self._request.replica_id)
        if broker is None:
            return FollowerState(self._request.replica_epoch, None, may_join_isr=False)
        return FollowerState(
            self._request.replica_epoch,
            None if broker.fenced else broker.epoch,
            may_join_isr=broker.is_active,
        )

    def _find(self, partition: SessionPartition) -> HostedPartition:
        topic = partition.topic
        hosted = self._host.find_replica(topic.name, topic.topic_id, partition.request.index)
        if self._ready_set is not None:
            self._ready_set.watch(partition, hosted)
        else:
            partition.hosted = hosted
        return hosted

    def positions(self) -> list[tuple[HostedPartition, int]]:
        """The partitions that exist here, with their fetch offsets."""
        found = []
        for partition in self._context.partitions:
            hosted: HostedPartition | None = partition.hosted  # type: ignore[assignment]
            if hosted is None or hosted.is_closed:
                try:
                    hosted = self._find(partition)
                except KafkaError:
                    continue
            found.append((hosted, partition.request.fetch_offset))
        return found


def _without_records(index: int, hosted: HostedPartition) -> FetchPartitionResponse:
    role = hosted.role
    return FetchPartitionResponse(
        index, 0, role.high_watermark, role.last_stable_offset, hosted.log.log_start_offset
    )
