"""RemoveRaftVoter, version 0 (KIP-853): makes a voter an observer, also one that is dead."""

from datetime import timedelta

from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voter_requests import Rejection, rejection_of_sender
from ottla.broker.services import NodeServices
from ottla.core.raft.membership import remove_voter
from ottla.core.raft.voter_set import ReplicaKey
from ottla.model.errors import ErrorCode

_TIMEOUT_MS = 30_000  # the request has none


async def handle(
    services: NodeServices, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    code, message = await _remove(services, request)
    return RemoveRaftVoterResponse(throttle_time=timedelta(), error_code=code, error_message=message)


async def _remove(services: NodeServices, request: RemoveRaftVoterRequest) -> Rejection:
    driver = services.quorum.driver
    rejection = rejection_of_sender(services, request.cluster_id)
    if rejection is not None:
        return rejection
    key = ReplicaKey(int(request.voter_id), request.voter_directory_id)
    change = remove_voter(driver.node, key, services.env.clock.monotonic_ms(), timeout_ms=_TIMEOUT_MS)
    try:
        await driver.change_voters(change)
    except OSError as error:
        return Rejection(ErrorCode.not_leader_or_follower, str(error))
    assert change.error is not None
    return Rejection(change.error, change.message)
