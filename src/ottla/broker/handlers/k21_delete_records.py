"""DeleteRecords, versions 0 to 2 (KIP-107). v2 flexible. Offset -1 means up to the high watermark."""

from datetime import timedelta
from functools import partial

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.topic_slices import run_by_topic
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal


def handle(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> Promise[DeleteRecordsResponse]:
    results = run_by_topic(services.scheduler, request.topics, partial(_delete, services), _topic_result)
    return results.then(lambda topics: DeleteRecordsResponse(throttle_time=timedelta(), topics=tuple(topics)))


def _delete(
    services: BrokerServices, topic: DeleteRecordsTopic, partition: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        if is_internal(topic.name):
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"clients may not delete records of the internal topic {topic.name}",
            )
        hosted = services.partitions.find(topic.name, None, partition.partition_index)
        low_watermark = hosted.delete_records(partition.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=partition.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=low_watermark, error_code=ErrorCode.none
    )


def _topic_result(
    topic: DeleteRecordsTopic, partitions: tuple[DeleteRecordsPartitionResult, ...]
) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(name=topic.name, partitions=partitions)
