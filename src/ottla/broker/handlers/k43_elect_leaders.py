"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460). v1 unclean elections and a top-level error; v2 flexible."""

from datetime import timedelta
from itertools import groupby
from typing import Any

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.services import NodeServices
from ottla.core.controller.commands import ElectionType, ElectLeaders
from ottla.model.errors import ErrorCode, KafkaError


def lift(request: ElectLeadersRequest, as_sent: Any, version: int) -> ElectLeadersRequest:
    if version >= 1:
        return request
    return ElectLeadersRequest(
        election_type=ElectionType.PREFERRED,
        topic_partitions=request.topic_partitions,
        timeout=request.timeout,
    )


async def handle(
    services: NodeServices, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    partitions = None
    if request.topic_partitions is not None:
        named = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
        partitions = tuple(sorted(dict.fromkeys(named)))
    try:
        results = await services.controller.submit(ElectLeaders(request.election_type, partitions))
    except KafkaError as error:
        return ElectLeadersResponse(
            throttle_time=timedelta(), error_code=error.code, replica_election_results=()
        )
    return ElectLeadersResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    PartitionResult(
                        partition_id=result.partition,
                        error_code=result.error.code,
                        error_message=result.error.message,
                    )
                    for result in of_topic
                ),
            )
            for topic, of_topic in groupby(results, lambda result: result.topic)
        ),
    )
