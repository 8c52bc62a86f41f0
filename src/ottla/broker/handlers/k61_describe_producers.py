"""DescribeProducers, version 0 (KIP-664): the producers that a partition remembers."""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.pending import Pending
from ottla.broker.topic_pieces import run_by_topic
from ottla.core.controller.topic_names import topic_name_error
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker


def handle(
    broker: "Broker", context: RequestContext, request: DescribeProducersRequest
) -> Pending[DescribeProducersResponse]:
    # A partition that is named twice is described once: it may have very many producers.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return run_by_topic(
        broker.turns,
        [(name, tuple(indexes)) for name, indexes in wanted.items()],
        lambda topic: topic[1],
        lambda topic, index: _describe(broker, topic[0], index),
        lambda topic, results: TopicResponse(name=topic[0], partitions=results),
    ).then(lambda topics: DescribeProducersResponse(throttle_time=timedelta(), topics=tuple(topics)))


def _describe(broker: "Broker", topic: str, index: int) -> PartitionResponse:
    problem = topic_name_error(topic)
    if problem is not None:
        return _refused(index, KafkaError(ErrorCode.invalid_topic_exception, problem))
    try:
        hosted = broker.partitions.find(topic, None, index)
    except KafkaError as error:
        return _refused(index, error)
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


def _refused(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=()
    )
