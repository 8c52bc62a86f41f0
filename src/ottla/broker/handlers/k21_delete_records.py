"""DeleteRecords, versions 0 to 2 (KIP-107). v2 flexible. Offset -1 means up to the high watermark."""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal

if TYPE_CHECKING:
    from ottla.broker.node import Broker


def handle(broker: "Broker", context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time=timedelta(),
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_delete(broker, topic.name, partition) for partition in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _delete(broker: "Broker", topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        if is_internal(topic):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"records of {topic} are not for clients to delete"
            )
        hosted = broker.partitions.find(topic, None, wanted.partition_index)
        low_watermark = hosted.delete_records(wanted.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=ErrorCode.none
    )
