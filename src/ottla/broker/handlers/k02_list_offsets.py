"""ListOffsets, versions 1 to 11.

v2 isolation level; v4 leader epochs (KIP-320); v7 offset of the maximum timestamp (KIP-734); v8 earliest local, v9
latest tiered offset (KIP-405, KIP-1005); v11 earliest pending upload (KIP-1023). There is no tiered storage here.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple, TypeVar

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import PartitionLeader
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.timestamp_search import TimestampOffset, TimestampSearch

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
_CONSUMER = -1
_FIRST_WITH_NOT_AVAILABLE = 5
# As in Kafka, for a partition that a request names twice.
_DUPLICATE = ErrorCode.invalid_request

T = TypeVar("T")
Found = tuple[int, int, int]  # timestamp, offset, leader epoch
_NOT_FOUND: Found = (-1, -1, -1)


def handle(
    services: BrokerServices, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Lookups by timestamp read batches: a thread performs them, and the response waits for them."""
    counts = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    reader = _Reader(request.replica_id, request.isolation_level, context.version)
    searches: list[_Search] = []
    topics: list[tuple[str, list[ListOffsetsPartitionResponse]]] = []
    for topic in request.topics:
        results: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            if counts[topic.name, wanted.partition_index] > 1:
                results.append(_error_response(wanted, _DUPLICATE))
            elif wanted.timestamp >= 0 or wanted.timestamp == _MAX_TIMESTAMP:
                searches.append(_Search(topic.name, wanted, results, len(results)))
                results.append(_response_partition(wanted, _NOT_FOUND))  # until the search has ended
            else:
                results.append(_list_partition(services, topic.name, wanted, reader))
        topics.append((topic.name, results))
    if searches:
        return _search_all(services, reader, searches, topics)
    return _response(topics)


class _Reader(NamedTuple):
    """Who asks. A client may know offsets up to the high watermark, a follower up to the end of the log."""

    replica_id: int
    isolation_level: int
    version: int

    def limit(self, leader: PartitionLeader) -> int:
        return leader.fetch_limit(self.isolation_level, is_follower=self.replica_id != _CONSUMER)

    def check_available(self, leader: PartitionLeader) -> None:
        """Raises KafkaError if the high watermark of a new leader is not reliable yet (KIP-207)."""
        if self.replica_id != _CONSUMER:
            return
        try:
            leader.check_offsets_available()
        except KafkaError as error:
            if self.version >= _FIRST_WITH_NOT_AVAILABLE:
                raise
            raise KafkaError(ErrorCode.leader_not_available, error.message) from error


def _response(topics: list[tuple[str, list[ListOffsetsPartitionResponse]]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=timedelta(),
        topics=tuple(
            ListOffsetsTopicResponse(name=name, partitions=tuple(results)) for name, results in topics
        ),
    )


def _list_partition(
    services: BrokerServices, topic: str, wanted: ListOffsetsPartition, reader: _Reader
) -> ListOffsetsPartitionResponse:
    try:
        hosted = _led_partition(services, topic, wanted)
        return _response_partition(wanted, _find(hosted, wanted.timestamp, reader))
    except KafkaError as error:
        return _error_response(wanted, error.code)


def _led_partition(services: BrokerServices, topic: str, wanted: ListOffsetsPartition) -> HostedPartition:
    current = wanted.current_leader_epoch
    hosted = services.partitions.find_leader(topic, None, wanted.partition_index, current)
    hosted.leader.check_epoch(current)
    return hosted


def _find(hosted: HostedPartition, timestamp: int, reader: _Reader) -> Found:
    leader = hosted.leader
    if timestamp == _LATEST:
        reader.check_available(leader)
        return -1, reader.limit(leader), leader.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        start_offset = hosted.log.log_start_offset
        return -1, start_offset, _epoch_at(hosted, start_offset)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    raise KafkaError(
        ErrorCode.unsupported_version,
        f"{timestamp} is neither a timestamp nor one of Kafka's special offsets",
    )


def _epoch_at(hosted: HostedPartition, offset: int) -> int:
    epoch = hosted.log.epochs.epoch_at(offset)
    return -1 if epoch is None else epoch


def _response_partition(wanted: ListOffsetsPartition, found: Found) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _error_response(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


# Lookups by timestamp


class _Search(NamedTuple):
    topic: str
    wanted: ListOffsetsPartition
    results: list[ListOffsetsPartitionResponse]
    response_index: int  # in `results`


async def _search_all(
    services: BrokerServices,
    reader: _Reader,
    searches: list[_Search],
    topics: list[tuple[str, list[ListOffsetsPartitionResponse]]],
) -> ListOffsetsResponse:
    for topic, wanted, results, index in searches:
        try:
            found = await _search(services, topic, wanted)
            hosted = _led_partition(services, topic, wanted)  # it may have been deleted meanwhile
            leader = hosted.leader
            if found is None or found.offset >= reader.limit(leader):
                reader.check_available(leader)  # a later record may be found soon
                results[index] = _response_partition(wanted, _NOT_FOUND)
            else:
                epoch = _epoch_at(hosted, found.offset)
                results[index] = _response_partition(wanted, (found.timestamp, found.offset, epoch))
        except KafkaError as error:
            results[index] = _error_response(wanted, error.code)
    return _response(topics)


async def _search(
    services: BrokerServices, topic: str, wanted: ListOffsetsPartition
) -> TimestampOffset | None:
    """Searches one segment after the other. The partition may change in between, so it is looked up for each."""
    from_offset: int | None = 0
    while from_offset is not None:
        hosted = _led_partition(services, topic, wanted)
        if (prepare := hosted.log.prepare_segments()) is not None:
            await _run_in_thread(services, hosted, prepare)
            hosted = _led_partition(services, topic, wanted)
        search, from_offset = _next_search(hosted, wanted.timestamp, from_offset)
        if search is None:
            return None
        found = await _run_in_thread(services, hosted, search.run)
        if found is not None:
            return found
    return None


async def _run_in_thread(services: BrokerServices, hosted: HostedPartition, work: Callable[[], T]) -> T:
    log = hosted.log
    try:
        return await services.record_thread.run(work)
    except OSError as error:
        raise hosted.storage_failed(error, log) from error


def _next_search(
    hosted: HostedPartition, timestamp: int, from_offset: int
) -> tuple[TimestampSearch | None, int | None]:
    try:
        if timestamp == _MAX_TIMESTAMP:
            return hosted.log.search_max_timestamp(), None
        return hosted.log.search_by_timestamp(timestamp, from_offset) or (None, None)
    except OSError as error:
        raise hosted.storage_failed(error) from error
