"""EndQuorumEpoch, versions 0 and 1 (KIP-595). v1 candidates for successors, the leader's address (KIP-853)."""

from kio.schema.end_quorum_epoch.v0.request import EndQuorumEpochRequest as EndQuorumEpochRequestV0
from kio.schema.end_quorum_epoch.v1.request import (
    EndQuorumEpochRequest,
    PartitionData,
    ReplicaInfo,
    TopicData,
)
from kio.schema.end_quorum_epoch.v1.response import EndQuorumEpochResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.quorum.wire_server import (
    build_end_quorum_epoch,
    learn_leader,
    read_end_quorum_epoch,
    rejection,
)
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode


async def handle(
    services: NodeServices, context: RequestContext, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    end = read_end_quorum_epoch(request)
    error = rejection(services, request.cluster_id, end)
    if end is None or error is not ErrorCode.none:
        return EndQuorumEpochResponse(error_code=error, topics=())
    learn_leader(services, end, request.leader_endpoints)
    try:
        response = await services.quorum.driver.end_quorum_epoch(end)
    except OSError:  # the node stops
        return EndQuorumEpochResponse(error_code=ErrorCode.broker_not_available, topics=())
    return build_end_quorum_epoch(response, voter_endpoint(services, response.leader_id))


def lift(
    request: EndQuorumEpochRequest, as_sent: EndQuorumEpochRequestV0 | EndQuorumEpochRequest, version: int
) -> EndQuorumEpochRequest:
    if isinstance(as_sent, EndQuorumEpochRequest):
        return request
    return EndQuorumEpochRequest(
        cluster_id=as_sent.cluster_id,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    PartitionData(
                        partition_index=partition.partition_index,
                        leader_id=partition.leader_id,
                        leader_epoch=partition.leader_epoch,
                        preferred_candidates=tuple(
                            ReplicaInfo(candidate_id=successor, candidate_directory_id=None)
                            for successor in partition.preferred_successors
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in as_sent.topics
        ),
        leader_endpoints=(),
    )
