"""Reading what a fetch asks for, within its limits, and waiting where there is too little.

The limits are Kafka's: a partition gives at most its own maximum, the response at most `max_bytes`, but the first
batch of the first partition that has any is returned whole, however large, so that a consumer always gets on (KIP-74).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.delayed_answer import DelayedAnswer
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.broker.pending import Pending
from ottla.broker.turns import Turns
from ottla.core.fetch_session import FetchContext, PartitionResult, SessionPartition
from ottla.env.clock import Clock
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.protocol.fetch_codec import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
)

PARTITIONS_PER_TURN = 5_000


class FetchRead(NamedTuple):
    """A result for each partition of the request, and whether it should be sent at once whatever its size.

    `doubtful` are the regions that may have to come from the disk.
    """

    results: list[PartitionResult]
    size: int
    is_urgent: bool
    doubtful: list[FileRegion]


class FetchReader:
    """Reads the partitions of one request, as often as it takes."""

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
    def is_long(self) -> bool:
        """Whether reading takes so long that it is done in turns, and not again with each record that comes."""
        return len(self._context.partitions) > PARTITIONS_PER_TURN

    def read(self) -> FetchRead:
        self._begin()
        return self._finish([self._read_or_refuse(partition) for partition in self._context.partitions])

    def read_in_turns(self, turns: Turns) -> Pending[FetchRead]:
        self._begin()
        return turns.run(tuple(self._context.partitions), self._read_or_refuse).then(self._finish)

    def _begin(self) -> None:
        self._left = self._max_bytes
        self._size = 0
        self._doubtful: list[FileRegion] = []
        self._is_urgent = False

    def _finish(self, results: list[PartitionResult]) -> FetchRead:
        return FetchRead(results, self._size, self._is_urgent, self._doubtful)

    def _read_or_refuse(self, partition: SessionPartition) -> PartitionResult:
        try:
            response = self._read_partition(partition)
        except KafkaError as error:
            response = FetchPartitionResponse(partition.request.index, int(error.code))
            self._is_urgent = True
        if response.diverging_epoch is not None:
            self._is_urgent = True
        return partition, response

    def _read_partition(self, partition: SessionPartition) -> FetchPartitionResponse:
        asked = partition.request
        hosted = self._find(partition)
        leader = hosted.leader
        leader.check_epoch(asked.current_leader_epoch)
        if self._is_follower:  # KafkaError where it is no replica of this partition
            hosted.follower_fetched(
                self._request.replica_id,
                asked.fetch_offset,
                asked.current_leader_epoch,
                asked.log_start_offset,
                self._clock.now_ms(),
            )
        if asked.last_fetched_epoch >= 0:
            diverging = leader.diverging_epoch(asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                return FetchPartitionResponse(
                    asked.index,
                    0,
                    leader.high_watermark,
                    leader.last_stable_offset,
                    leader.log_start_offset,
                    diverging_epoch=EpochEndOffset(*diverging),
                )
        high_watermark, last_stable_offset, log_start_offset, found, aborted = hosted.fetch(
            asked.fetch_offset,
            min(asked.max_bytes, self._left),
            isolation_level=self._request.isolation_level,
            is_follower=self._is_follower,
            at_least_one=self._size == 0,
        )
        records: bytes | FileRegion = b""
        if found is not None and found.region.length:
            records = found.region
            self._size += records.length
            self._left = max(0, self._left - records.length)
            if not found.is_hot:
                self._doubtful.append(records)
        return FetchPartitionResponse(
            asked.index, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1, records
        )

    def _find(self, partition: SessionPartition) -> HostedPartition:
        """A session's partitions are looked up once, and again when what was found is closed."""
        hosted: HostedPartition | None = partition.hosted
        if hosted is None or hosted.is_closed:
            topic = partition.topic
            hosted = partition.hosted = self._host.find(topic.name, topic.topic_id, partition.request.index)
        return hosted

    def positions(self) -> list[tuple[HostedPartition, int]]:
        """The partitions that are there, with the offset that each is read from."""
        found = []
        for partition in self._context.partitions:
            try:
                hosted = self._find(partition)
            except KafkaError:
                continue
            found.append((hosted, partition.request.fetch_offset))
        return found


class TimedFetch(DelayedAnswer):
    """A fetch of so many partitions that it waits for its time to be over, and looks at them only then."""

    def __init__(self, answer: Pending[Any], expired: Callable[[], None]) -> None:
        super().__init__(answer)
        self._expired = expired

    def try_complete(self, now_ms: int) -> bool:
        return False

    def on_expire(self, now_ms: int) -> None:
        self._expired()


class DelayedFetch(DelayedAnswer):
    """A fetch that waits for `min_bytes`. It looks at offsets first, and at the log only when enough may be there.

    `finished` completes `answer`.
    """

    def __init__(
        self,
        answer: Pending[Any],
        reader: FetchReader,
        request: FetchRequest,
        finished: Callable[[FetchRead], None],
    ) -> None:
        super().__init__(answer)
        self._reader = reader
        self._min_bytes = request.min_bytes
        self._isolation_level = request.isolation_level
        self._is_follower = request.replica_id >= 0
        self._finished = finished
        self._positions = reader.positions()
        self._epochs = [hosted.leader.leader_epoch for hosted, _ in self._positions]

    @property
    def keys(self) -> Sequence[tuple[str, int] | UUID]:
        return [hosted.topic_partition for hosted, _ in self._positions]

    def try_complete(self, now_ms: int) -> bool:
        if not self._may_be_ready():
            return False
        read = self._reader.read()
        if read.size < self._min_bytes and not read.is_urgent:
            return False
        self._finished(read)
        return True

    def on_expire(self, now_ms: int) -> None:
        self._finished(self._reader.read())

    def _may_be_ready(self) -> bool:
        isolation_level, is_follower = self._isolation_level, self._is_follower
        for (hosted, offset), epoch in zip(self._positions, self._epochs, strict=True):
            leader = hosted.leader
            if (
                leader.fetch_limit(isolation_level, is_follower=is_follower) > offset
                or offset < leader.log_start_offset
                or leader.leader_epoch != epoch
                or hosted.is_closed
                or hosted.failure is not None
            ):
                return True
        return False
