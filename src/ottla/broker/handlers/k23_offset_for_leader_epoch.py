"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-279, KIP-320): the end offset of a leader epoch."""

from datetime import timedelta
from functools import partial

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.topic_slices import run_by_topic
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Promise[OffsetForLeaderEpochResponse]:
    results = run_by_topic(services.scheduler, request.topics, partial(_find_end, services), _topic_result)
    return results.then(
        lambda topics: OffsetForLeaderEpochResponse(throttle_time=timedelta(), topics=tuple(topics))
    )


def _find_end(
    services: BrokerServices, topic: OffsetForLeaderTopic, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        current = asked.current_leader_epoch
        hosted = services.partitions.find_leader(topic.topic, None, asked.partition, current)
        hosted.leader.check_epoch(current)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = hosted.log.epochs.end_offset_for(asked.leader_epoch, hosted.log.log_end_offset)
    return EpochEndOffset(
        error_code=ErrorCode.none, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )


def _topic_result(
    topic: OffsetForLeaderTopic, partitions: tuple[EpochEndOffset, ...]
) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)
