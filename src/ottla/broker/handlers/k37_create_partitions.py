"""CreatePartitions, versions 0 to 3 (KIP-195). v2 flexible."""

from datetime import timedelta

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import CreatePartitions, NewPartitions


async def handle(
    services: NodeServices, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    command = CreatePartitions(
        tuple(_more_partitions(topic) for topic in request.topics),
        placement_start=services.env.random.getrandbits(31),
        validate_only=request.validate_only,
    )
    return CreatePartitionsResponse(
        throttle_time=timedelta(),
        results=tuple(
            CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name, error in await services.controller.submit(command)
        ),
    )


def _more_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    placed = None if assignments is None else tuple(assignment.broker_ids for assignment in assignments)
    return NewPartitions(topic.name, topic.count, placed)
