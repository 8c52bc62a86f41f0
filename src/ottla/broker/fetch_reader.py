"""Reads the partitions of a fetch request within its limits.

The limits are Kafka's: a partition returns at most its own maximum, and the response at most `max_bytes`. The first
batch of the first partition that has records is returned whole, whatever its size, so that a consumer always makes
progress (KIP-74).
"""

from typing import NamedTuple

from ottla.broker.fair_scheduler import FairScheduler
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.broker.promise import Promise
from ottla.core.fetch_session import FetchContext, PartitionResult, SessionPartition
from ottla.env.clock import Clock
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
)
from ottla.storage.segments import ColdLookup

# A fetch of more partitions is read in slices, and only once more when its time is over.
LARGE_FETCH_PARTITIONS = 5_000


class FetchRead(NamedTuple):
    """The results of all partitions of a request.

    An urgent result is sent at once, whatever its size. The regions in `maybe_cold` may not be in the page cache. If
    there are `cold_lookups` the results are incomplete: run them in a thread and read again.
    """

    results: list[PartitionResult]
    size: int
    is_urgent: bool
    maybe_cold: list[FileRegion]
    cold_lookups: list[ColdLookup]


class FetchReader:
    """Reads the partitions of one request, once or repeatedly."""

    def __init__(
        self, host: PartitionHost, request: FetchRequest, context: FetchContext, max_bytes: int, clock: Clock
    ) -> None:
        self._host = host
        self._clock = clock
        self._request = request
        self._context = context
        self._max_bytes = max_bytes
        self._is_follower = request.replica_id >= 0

    @property
    def is_large(self) -> bool:
        return len(self._context.partitions) > LARGE_FETCH_PARTITIONS

    def read(self, *, may_block: bool = True) -> FetchRead:
        """Loads the indexes of old segments only if `may_block` is set."""
        self._begin(may_block)
        return self._finish([self._read_or_error(partition) for partition in self._context.partitions])

    def read_in_slices(self, scheduler: FairScheduler, *, may_block: bool = True) -> Promise[FetchRead]:
        self._begin(may_block)
        return scheduler.run(tuple(self._context.partitions), self._read_or_error).then(self._finish)

    def _begin(self, may_block: bool) -> None:
        self._may_block = may_block
        self._cold_lookups: list[ColdLookup] = []
        self._left = self._max_bytes
        self._size = 0
        self._maybe_cold: list[FileRegion] = []
        self._is_urgent = False

    def _finish(self, results: list[PartitionResult]) -> FetchRead:
        return FetchRead(results, self._size, self._is_urgent, self._maybe_cold, self._cold_lookups)

    def _read_or_error(self, partition: SessionPartition) -> PartitionResult:
        try:
            response = self._read_partition(partition)
        except KafkaError as error:
            response = FetchPartitionResponse(partition.request.index, int(error.code))
            self._is_urgent = True
        except ColdLookup as lookup:
            response = FetchPartitionResponse(partition.request.index, 0)
            self._cold_lookups.append(lookup)
        if response.diverging_epoch is not None:
            self._is_urgent = True
        return partition, response

    def _read_partition(self, partition: SessionPartition) -> FetchPartitionResponse:
        request = partition.request
        hosted = self._find(partition)
        leader = hosted.leader
        leader.check_epoch(request.current_leader_epoch)
        if self._is_follower:  # raises KafkaError if it is no replica of this partition
            hosted.follower_fetched(
                self._request.replica_id,
                request.fetch_offset,
                request.current_leader_epoch,
                request.log_start_offset,
                self._clock.now_ms(),
            )
        if request.last_fetched_epoch >= 0:
            diverging = leader.diverging_epoch(request.last_fetched_epoch, request.fetch_offset)
            if diverging is not None:
                return FetchPartitionResponse(
                    request.index,
                    0,
                    leader.high_watermark,
                    leader.last_stable_offset,
                    hosted.log.log_start_offset,
                    diverging_epoch=EpochEndOffset(*diverging),
                )
        high_watermark, last_stable_offset, log_start_offset, found, aborted = hosted.fetch(
            request.fetch_offset,
            min(request.max_bytes, self._left),
            isolation_level=self._request.isolation_level,
            is_follower=self._is_follower,
            at_least_one=self._size == 0,
            may_block=self._may_block,
        )
        records: bytes | FileRegion = b""
        if found is not None and found.region.length:
            records = found.region
            self._size += records.length
            self._left = max(0, self._left - records.length)
            if not found.is_hot:
                self._maybe_cold.append(records)
        return FetchPartitionResponse(
            request.index, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1, records
        )

    def _find(self, partition: SessionPartition) -> HostedPartition:
        """Looks up a partition of a session once, and again when the hosted partition is closed."""
        hosted: HostedPartition | None = partition.hosted
        if hosted is None or hosted.is_closed:
            topic = partition.topic
            hosted = partition.hosted = self._host.find(topic.name, topic.topic_id, partition.request.index)
        return hosted

    def positions(self) -> list[tuple[HostedPartition, int]]:
        """The partitions that exist here, with their fetch offsets."""
        found = []
        for partition in self._context.partitions:
            try:
                hosted = self._find(partition)
            except KafkaError:
                continue
            found.append((hosted, partition.request.fetch_offset))
        return found
