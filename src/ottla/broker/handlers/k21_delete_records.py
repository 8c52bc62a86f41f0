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

from ottla.broker.delayed_delete_records import DelayedDeleteRecords, PartitionDeletion
from ottla.broker.dispatch import RequestContext
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.broker.topic_slices import run_by_topic
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.topics import is_internal


def handle(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> Promise[DeleteRecordsResponse]:
    deletions = run_by_topic(services.scheduler, request.topics, partial(_delete, services), _by_topic)
    return deletions.then(partial(_respond_when_deleted, services, request))


def _delete(
    services: BrokerServices, topic: DeleteRecordsTopic, partition: DeleteRecordsPartition
) -> PartitionDeletion:
    deletion = PartitionDeletion(partition.partition_index)
    try:
        if is_internal(topic.name):
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"clients may not delete records of the internal topic {topic.name}",
            )
        hosted = services.partitions.find_leader(topic.name, None, partition.partition_index)
        deletion.start(hosted, partition.offset, partial(_is_alive, services))
    except KafkaError as error:
        deletion.fail(error)
    return deletion


def _is_alive(services: BrokerServices, broker_id: int) -> bool:
    broker = services.metadata.image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def _by_topic(
    topic: DeleteRecordsTopic, deletions: tuple[PartitionDeletion, ...]
) -> tuple[str, tuple[PartitionDeletion, ...]]:
    return topic.name, deletions


def _respond_when_deleted(
    services: BrokerServices,
    request: DeleteRecordsRequest,
    topics: list[tuple[str, tuple[PartitionDeletion, ...]]],
) -> DeleteRecordsResponse | Promise[DeleteRecordsResponse]:
    waiting = [deletion for _, deletions in topics for deletion in deletions if deletion.is_pending]
    if not waiting:
        return _response(topics)
    promise: Promise[DeleteRecordsResponse] = Promise()
    operation = DelayedDeleteRecords(promise, waiting, lambda: promise.complete(_response(topics)))
    # A request with many partitions takes several turns of the event loop, in which nobody watched the first ones.
    if not operation.try_complete(0):
        services.delayed_operations.watch(
            operation,
            [deletion.hosted.topic_partition for deletion in waiting],
            request.timeout // timedelta(milliseconds=1),
        )
    return promise


def _response(topics: list[tuple[str, tuple[PartitionDeletion, ...]]]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time=timedelta(),
        topics=tuple(
            DeleteRecordsTopicResult(
                name=name,
                partitions=tuple(
                    DeleteRecordsPartitionResult(
                        partition_index=deletion.index,
                        low_watermark=deletion.low_watermark,
                        error_code=deletion.error_code,
                    )
                    for deletion in deletions
                ),
            )
            for name, deletions in topics
        ),
    )
