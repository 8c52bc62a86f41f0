"""AlterPartitionReassignments, versions 0 and 1 (KIP-455). v1 may forbid another replication factor (KIP-860)."""

from datetime import timedelta
from itertools import groupby

from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import AlterReassignments
from ottla.core.controller.partition_commands import Reassignment, ReassignmentResult
from ottla.model.errors import ErrorCode, KafkaError


async def handle(
    services: NodeServices, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    partitions = tuple(
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    )
    allows_change = request.allow_replication_factor_change
    code, message = ErrorCode.none, None
    results: tuple[ReassignmentResult, ...] = ()
    try:
        results = await services.controller.submit(AlterReassignments(partitions, allows_change))
    except KafkaError as error:
        code, message = error.code, error.message
    return AlterPartitionReassignmentsResponse(
        throttle_time=timedelta(),
        allow_replication_factor_change=allows_change,
        error_code=code,
        error_message=message,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=result.partition,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    for result in of_topic
                ),
            )
            for topic, of_topic in groupby(results, lambda result: result.topic)
        ),
    )
