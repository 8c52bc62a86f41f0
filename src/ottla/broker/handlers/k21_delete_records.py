"""DeleteRecords, versions 0 to 2 (KIP-107). v2 flexible. Offset -1 means up to the high watermark."""

from datetime import timedelta

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.pending import Pending
from ottla.broker.services import BrokerServices
from ottla.broker.topic_pieces import run_by_topic
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal


def handle(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> Pending[DeleteRecordsResponse]:
    return run_by_topic(
        services.scheduler,
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, partition: _delete(services, topic.name, partition),
        lambda topic, results: DeleteRecordsTopicResult(name=topic.name, partitions=results),
    ).then(lambda topics: DeleteRecordsResponse(throttle_time=timedelta(), topics=tuple(topics)))


def _delete(
    services: BrokerServices, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"records of {topic} are not for clients to delete"
            )
        hosted = services.partitions.find(topic, None, wanted.partition_index)
        low_watermark = hosted.delete_records(wanted.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=ErrorCode.none
    )
