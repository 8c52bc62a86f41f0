"""ListOffsets, versions 1 to 11.

v2 isolation level; v4 leader epochs (KIP-320); v7 the record of the maximum timestamp (KIP-734); v8 earliest local,
v9 latest tiered offset (KIP-405, KIP-1005); v11 earliest pending upload (KIP-1023). Nothing is tiered here.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
_NOTHING: Found = (-1, -1, -1)


def handle(broker: "Broker", context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for topic in request.topics:
        partitions = [
            _list_partition(broker, topic.name, partition, request.isolation_level)
            for partition in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(throttle_time=timedelta(), topics=tuple(topics))


def _list_partition(
    broker: "Broker", topic: str, wanted: ListOffsetsPartition, isolation_level: int
) -> ListOffsetsPartitionResponse:
    try:
        hosted = broker.partitions.find(topic, None, wanted.partition_index)
        hosted.leader.check_epoch(wanted.current_leader_epoch)
        try:
            timestamp, offset, epoch = _find(hosted, wanted.timestamp, isolation_level)
        except OSError as error:
            raise hosted.storage_failed(error) from error
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _find(hosted: HostedPartition, timestamp: int, isolation_level: int) -> Found:
    leader, log = hosted.leader, hosted.log
    limit = leader.fetch_limit(isolation_level, is_follower=False)
    if timestamp == _LATEST:
        return -1, limit, leader.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, leader.log_start_offset, _epoch_at(hosted, leader.log_start_offset)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    if timestamp < _EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.unsupported_version, f"{timestamp} is no timestamp and names no offset")
    found = (
        log.offset_of_max_timestamp() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    )
    if found is None or found[1] >= limit:
        return _NOTHING
    return found[0], found[1], _epoch_at(hosted, found[1])


def _epoch_at(hosted: HostedPartition, offset: int) -> int:
    epoch = hosted.log.epochs.epoch_at(offset)
    return -1 if epoch is None else epoch
