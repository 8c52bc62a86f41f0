"""OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-279, KIP-320): where an epoch of this log ends."""

from datetime import timedelta

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.pending import Pending
from ottla.broker.services import BrokerServices
from ottla.broker.topic_pieces import run_by_topic
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Pending[OffsetForLeaderEpochResponse]:
    return run_by_topic(
        services.scheduler,
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, wanted: _end_of_epoch(services, topic.topic, wanted),
        lambda topic, results: OffsetForLeaderTopicResult(topic=topic.topic, partitions=results),
    ).then(lambda topics: OffsetForLeaderEpochResponse(throttle_time=timedelta(), topics=tuple(topics)))


def _end_of_epoch(services: BrokerServices, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        hosted = services.partitions.find(topic, None, wanted.partition)
        hosted.leader.check_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=wanted.partition)
    epoch, end_offset = hosted.log.epochs.end_offset_for(wanted.leader_epoch, hosted.leader.log_end_offset)
    return EpochEndOffset(
        error_code=ErrorCode.none, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
    )
