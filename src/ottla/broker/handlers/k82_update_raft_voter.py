"""UpdateRaftVoter, version 0 (KIP-853): a voter tells the leader its address and versions.

With static voters (kraft.version 0) there is nothing to record. Kafka's voters repeat the request, and log an error
each time, until the leader accepts it.
"""

from datetime import timedelta

from kio.schema.update_raft_voter.v0.request import UpdateRaftVoterRequest
from kio.schema.update_raft_voter.v0.response import CurrentLeader, UpdateRaftVoterResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voter_requests import read_voter, rejection_of_change
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.services import NodeServices
from ottla.core.raft.membership import update_voter
from ottla.model.errors import ErrorCode


async def handle(
    services: NodeServices, context: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    driver = services.quorum.driver
    node = driver.node
    error = _error(services, request)
    try:
        await driver.step_end()
    except OSError:  # the node stops
        error = ErrorCode.broker_not_available
    endpoint = voter_endpoint(services, node.leader_id)
    return UpdateRaftVoterResponse(
        throttle_time=timedelta(),
        error_code=error,
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
    if error is not ErrorCode.none or not node.history.allows_changes:
        return error
    feature = request.k_raft_version_feature
    voter = read_voter(request, (int(feature.min_supported_version), int(feature.max_supported_version)))
    rejection = rejection_of_change(services, request.cluster_id, voter)
    if rejection is not None:
        return rejection.code
    refusal = update_voter(node, voter, services.env.clock.monotonic_ms())
    return ErrorCode.none if refusal is None else refusal.error
