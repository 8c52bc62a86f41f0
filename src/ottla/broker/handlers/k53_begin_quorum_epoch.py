"""BeginQuorumEpoch, versions 0 and 1 (KIP-595). v1 voter ids and the leader's address (KIP-853)."""

from kio.schema.begin_quorum_epoch.v1.request import BeginQuorumEpochRequest
from kio.schema.begin_quorum_epoch.v1.response import BeginQuorumEpochResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.quorum.wire_server import (
    build_begin_quorum_epoch,
    is_for_another_voter,
    learn_leader,
    read_begin_quorum_epoch,
    rejection,
)
from ottla.broker.services import NodeServices
from ottla.core.raft.messages import EpochResponse
from ottla.model.errors import ErrorCode


async def handle(
    services: NodeServices, context: RequestContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    driver = services.quorum.driver
    begin = read_begin_quorum_epoch(request)
    error = rejection(services, request.cluster_id, begin)
    if begin is None or error is not ErrorCode.none:
        return BeginQuorumEpochResponse(error_code=error, topics=())
    if is_for_another_voter(services, request.voter_id):
        response = EpochResponse(driver.node.epoch, driver.node.leader_id, ErrorCode.invalid_voter_key)
    else:
        learn_leader(services, begin, request.leader_endpoints)
        try:
            response = await driver.begin_quorum_epoch(begin)
        except OSError:  # the node stops
            return BeginQuorumEpochResponse(error_code=ErrorCode.broker_not_available, topics=())
    return build_begin_quorum_epoch(response, voter_endpoint(services, response.leader_id))
