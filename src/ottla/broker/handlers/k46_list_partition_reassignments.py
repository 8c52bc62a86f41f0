"""ListPartitionReassignments, version 0 (KIP-455)."""

from datetime import timedelta
from itertools import groupby

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.partition_commands import OngoingReassignment
from ottla.core.controller.reassignment import ongoing_reassignments
from ottla.model.errors import ErrorCode


def handle(
    services: NodeServices, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not services.controller.is_local:
        return _response(
            [],
            ErrorCode.not_controller,
            f"node {services.config.node_id} is not the active controller, which alone knows all reassignments",
        )
    asked = None
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    return _response(ongoing_reassignments(services.quorum.image, asked))


def _response(
    ongoing: list[OngoingReassignment], code: ErrorCode = ErrorCode.none, message: str | None = None
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time=timedelta(),
        error_code=code,
        error_message=message,
        topics=tuple(
            OngoingTopicReassignment(
                name=topic,
                partitions=tuple(
                    OngoingPartitionReassignment(
                        partition_index=each.partition,
                        replicas=each.replicas,
                        adding_replicas=each.adding,
                        removing_replicas=each.removing,
                    )
                    for each in of_topic
                ),
            )
            for topic, of_topic in groupby(ongoing, lambda each: each.topic)
        ),
    )
