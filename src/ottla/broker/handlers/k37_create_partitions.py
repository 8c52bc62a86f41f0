"""CreatePartitions, versions 0 to 3 (KIP-195). v2 flexible."""

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from ottla.broker.dispatch import RequestContext
from ottla.core.controller.commands import CreatePartitions, NewPartitions

if TYPE_CHECKING:
    from ottla.broker.node import Broker


async def handle(
    broker: "Broker", context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    command = CreatePartitions(
        tuple(_more_partitions(topic) for topic in request.topics),
        placement_start=broker.env.random.getrandbits(31),
        validate_only=request.validate_only,
    )
    return CreatePartitionsResponse(
        throttle_time=timedelta(),
        results=tuple(
            CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
            for name, error in await broker.quorum.submit(command)
        ),
    )


def _more_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    placed = None if assignments is None else tuple(assignment.broker_ids for assignment in assignments)
    return NewPartitions(topic.name, topic.count, placed)
