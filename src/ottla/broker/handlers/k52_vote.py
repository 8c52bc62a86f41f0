"""Vote, versions 0 to 2 (KIP-595). v1 voter ids and the leader's address (KIP-853); v2 pre-votes (KIP-996)."""

from kio.schema.vote.v2.request import VoteRequest
from kio.schema.vote.v2.response import VoteResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.quorum.wire_server import build_vote, is_for_another_voter, read_vote, rejection
from ottla.broker.services import NodeServices
from ottla.core.raft.messages import VoteResponse as Response
from ottla.model.errors import ErrorCode


async def handle(services: NodeServices, context: RequestContext, request: VoteRequest) -> VoteResponse:
    driver = services.quorum.driver
    vote = read_vote(request)
    error = rejection(services, request.cluster_id, vote)
    if vote is None or error is not ErrorCode.none:
        return VoteResponse(error_code=error, topics=())
    if is_for_another_voter(services, request.voter_id):
        node = driver.node
        response = Response(node.epoch, node.leader_id, is_granted=False, error=ErrorCode.invalid_voter_key)
    else:
        services.quorum.warn_of_unknown_voter(vote.candidate_id)
        try:
            response = await driver.vote(vote)
        except OSError:  # the node stops
            return VoteResponse(error_code=ErrorCode.broker_not_available, topics=())
    return build_vote(response, voter_endpoint(services, response.leader_id))
