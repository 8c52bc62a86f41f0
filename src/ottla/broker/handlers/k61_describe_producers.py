"""DescribeProducers, version 0 (KIP-664): the producers that a partition knows."""

from datetime import timedelta
from functools import partial
from typing import NamedTuple

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.topic_slices import run_by_topic
from ottla.core.controller.topic_names import topic_name_error
from ottla.model.errors import ErrorCode, KafkaError


def handle(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> Promise[DescribeProducersResponse]:
    # A partition that is named twice is described once: it may have very many producers.
    indexes: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        indexes.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [_Topic(name, tuple(partitions)) for name, partitions in indexes.items()]
    return run_by_topic(services.scheduler, topics, partial(_describe, services), _topic_response).then(
        lambda topics: DescribeProducersResponse(throttle_time=timedelta(), topics=tuple(topics))
    )


class _Topic(NamedTuple):
    name: str
    partitions: tuple[int, ...]


def _topic_response(topic: _Topic, partitions: tuple[PartitionResponse, ...]) -> TopicResponse:
    return TopicResponse(name=topic.name, partitions=partitions)


def _describe(services: BrokerServices, topic: _Topic, index: int) -> PartitionResponse:
    invalid_name = topic_name_error(topic.name)
    if invalid_name is not None:
        return _error_response(index, KafkaError(ErrorCode.invalid_topic_exception, invalid_name))
    try:
        hosted = services.partitions.find_replica(topic.name, None, index)
    except KafkaError as error:
        return _error_response(index, error)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        active_producers=tuple(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in hosted.log.producers.entries()
        ),
    )


def _error_response(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=()
    )
