"""DescribeTopicPartitions, version 0 (KIP-966): topics page by page, with the eligible leader replicas."""

from datetime import timedelta

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from ottla.broker.authorized_operations import TOPIC_OPERATIONS
from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.topic_names import topic_name_error
from ottla.model.errors import ErrorCode
from ottla.model.topics import is_internal


def handle(
    services: NodeServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    if _is_bad_cursor(request):
        return DescribeTopicPartitionsResponse(
            throttle_time=timedelta(),
            topics=tuple(_no_topic(topic.name, ErrorCode.invalid_request) for topic in request.topics),
            next_cursor=None,
        )
    image = services.metadata.image
    wanted = sorted({topic.name for topic in request.topics} or image.topics)
    first_partition = 0
    if request.cursor is not None:
        cursor = request.cursor
        wanted = [name for name in wanted if name >= cursor.topic_name]
        if wanted and wanted[0] == cursor.topic_name:
            first_partition = cursor.partition_index
    limit = services.config.get_int("max.request.partition.size.limit")
    # At least one, as in Kafka: with empty pages a client would never reach the end.
    left = max(1, min(request.response_partition_limit, limit))
    topics = []
    next_cursor = None
    for name in wanted:
        topic = image.topics.get(name)
        if topic is None:
            if (
                request.topics
            ):  # only for named topics; a request for all topics needs no error for a deleted one
                valid = topic_name_error(name) is None
                error = ErrorCode.unknown_topic_or_partition if valid else ErrorCode.invalid_topic_exception
                topics.append(_no_topic(name, error))
            continue
        if left <= 0:
            next_cursor = Cursor(topic_name=name, partition_index=first_partition)
            break
        indexes = [index for index in topic.partitions if index >= first_partition]
        topics.append(_describe(image, topic, indexes[:left]))
        if len(indexes) > left:
            next_cursor = Cursor(topic_name=name, partition_index=indexes[left])
            break
        left -= len(indexes)
        first_partition = 0
    return DescribeTopicPartitionsResponse(
        throttle_time=timedelta(), topics=tuple(topics), next_cursor=next_cursor
    )


def _is_bad_cursor(request: DescribeTopicPartitionsRequest) -> bool:
    cursor, named = request.cursor, [topic.name for topic in request.topics]
    return cursor is not None and (
        cursor.partition_index < 0 or bool(named and cursor.topic_name not in named)
    )


def _no_topic(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=None,
        is_internal=is_internal(name),
        partitions=(),
    )


def _describe(
    image: MetadataImage, topic: TopicImage, indexes: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=tuple(_describe_partition(image, index, topic.partitions[index]) for index in indexes),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _describe_partition(
    image: MetadataImage, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    led = partition.has_leader and image.is_active(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.none if led else ErrorCode.leader_not_available,
        partition_index=index,
        leader_id=partition.leader if led else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
        offline_replicas=tuple(
            replica for replica in partition.replicas if not image.is_available(partition, replica)
        ),
    )
