"""UpdateRaftVoter, version 0 (KIP-853): a voter of Apache Kafka tells the leader its address and versions.

The voters are static (kraft.version 0), so there is nothing to record. Kafka's voters repeat the request, and log an
error each time, until the leader accepts it.
"""

from datetime import timedelta

from kio.schema.update_raft_voter.v0.request import UpdateRaftVoterRequest
from kio.schema.update_raft_voter.v0.response import CurrentLeader, UpdateRaftVoterResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode


def handle(
    services: NodeServices, context: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    node = services.quorum.driver.node
    endpoint = voter_endpoint(services, node.leader_id)
    return UpdateRaftVoterResponse(
        throttle_time=timedelta(),
        error_code=_error(services, request),
        current_leader=CurrentLeader(
            leader_id=node.leader_id,
            leader_epoch=node.epoch,
            host="" if endpoint is None else endpoint.host,
            port=0 if endpoint is None else endpoint.port,
        ),
    )


def _error(services: NodeServices, request: UpdateRaftVoterRequest) -> ErrorCode:
    node = services.quorum.driver.node
    if request.cluster_id is not None and request.cluster_id != services.cluster_id:
        return ErrorCode.inconsistent_cluster_id
    error = node.leadership_error(request.current_leader_epoch)
    if error is ErrorCode.none and request.voter_id not in node.voters:
        return ErrorCode.voter_not_found
    return error
