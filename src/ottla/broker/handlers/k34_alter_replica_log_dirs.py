"""AlterReplicaLogDirs, versions 1 and 2 (KIP-113): moves replicas to another data directory.

The response says that the move has started; DescribeLogDirs shows the copy as a future replica until it is done.
"""

from datetime import timedelta

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition


def handle(
    services: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for index in topic.partitions:
                code = _move(services, TopicPartition(topic.name, index), wanted.path)
                results.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(
        throttle_time=timedelta(),
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in results.items()
        ),
    )


def _move(services: BrokerServices, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        services.partitions.move(topic_partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.none
