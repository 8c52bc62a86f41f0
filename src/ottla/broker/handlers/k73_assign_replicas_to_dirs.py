"""AssignReplicasToDirs, version 0 (KIP-858): a broker says in which of its data directories it has replicas."""

from datetime import timedelta
from itertools import groupby

from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest
from kio.schema.assign_replicas_to_dirs.v0.response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import AssignedReplica, AssignReplicasToDirs
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID


async def handle(
    services: NodeServices, context: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    command = AssignReplicasToDirs(
        request.broker_id,
        request.broker_epoch,
        tuple(
            (
                directory.id_ or ZERO_UUID,
                tuple(
                    (
                        topic.topic_id or ZERO_UUID,
                        tuple(partition.partition_index for partition in topic.partitions),
                    )
                    for topic in directory.topics
                ),
            )
            for directory in request.directories
        ),
    )
    try:
        results = await services.quorum.submit(command)
    except KafkaError as error:
        return AssignReplicasToDirsResponse(throttle_time=timedelta(), error_code=error.code, directories=())
    return AssignReplicasToDirsResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        directories=tuple(
            DirectoryData(id_=directory_id, topics=_topics(list(in_directory)))
            for directory_id, in_directory in groupby(results, lambda result: result.directory_id)
        ),
    )


def _topics(results: list[AssignedReplica]) -> tuple[TopicData, ...]:
    return tuple(
        TopicData(
            topic_id=topic_id,
            partitions=tuple(
                PartitionData(partition_index=result.partition, error_code=result.error)
                for result in of_topic
            ),
        )
        for topic_id, of_topic in groupby(results, lambda result: result.topic_id)
    )
