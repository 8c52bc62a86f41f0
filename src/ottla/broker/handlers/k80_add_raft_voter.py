"""AddRaftVoter, versions 0 and 1 (KIP-853): makes an observer one of the voters. v1 acknowledges before the commit."""

from datetime import timedelta
from typing import Any

from kio.schema.add_raft_voter.v0.request import AddRaftVoterRequest as AddRaftVoterRequestV0
from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.add_raft_voter.v1.response import AddRaftVoterResponse

from ottla.broker.dispatch import RequestContext
from ottla.broker.quorum.voter_requests import (
    Rejection,
    kraft_versions_at,
    read_voter,
    rejection_of_change,
)
from ottla.broker.services import NodeServices
from ottla.core.raft.membership import add_voter, refusal_of_any_change
from ottla.model.errors import ErrorCode

# A broker that has forwarded the request gives it up after controller.socket.timeout.ms (KIP-590), and the client would
# not learn the reason.
_FORWARDING_SHARE = 0.75


def lift(request: AddRaftVoterRequest, as_sent: Any, version: int) -> AddRaftVoterRequest:
    if not isinstance(as_sent, AddRaftVoterRequestV0):
        return request
    return AddRaftVoterRequest(
        cluster_id=request.cluster_id,
        timeout=request.timeout,
        voter_id=request.voter_id,
        voter_directory_id=request.voter_directory_id,
        listeners=request.listeners,
        ack_when_committed=True,
    )


async def handle(
    services: NodeServices, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    code, message = await _add(services, request)
    return AddRaftVoterResponse(throttle_time=timedelta(), error_code=code, error_message=message)


async def _add(services: NodeServices, request: AddRaftVoterRequest) -> Rejection:
    driver, clock = services.quorum.driver, services.env.clock
    deadline_ms = clock.monotonic_ms() + _timeout_ms(services, request)
    voter = read_voter(request, (0, 0))
    rejection = rejection_of_change(services, request.cluster_id, voter)
    if rejection is not None:
        return rejection
    refusal = refusal_of_any_change(driver.node)
    if refusal is not None:
        return Rejection(*refusal)
    if not services.quorum.can_grow:
        return Rejection(
            ErrorCode.unsupported_version,
            f"node {services.config.node_id} was a quorum of its own when it started. Restart it, then add voters",
        )
    if voter.id not in driver.node.voters:
        # KIP-853: the leader asks the new voter itself, which also shows that the address is right.
        versions = await kraft_versions_at(services, voter)
        if isinstance(versions, Rejection):
            return versions
        voter = voter._replace(kraft_versions=versions)
    now_ms = clock.monotonic_ms()
    change = add_voter(
        driver.node,
        voter,
        now_ms,
        timeout_ms=max(deadline_ms - now_ms, 0),
        waits_for_commit=request.ack_when_committed,
    )
    try:
        await driver.change_voters(change)
    except OSError as error:
        return Rejection(ErrorCode.not_leader_or_follower, str(error))
    assert change.error is not None
    return Rejection(change.error, change.message)


def _timeout_ms(services: NodeServices, request: AddRaftVoterRequest) -> int:
    forwarding_ms = services.config.get_int("controller.socket.timeout.ms")
    return min(int(request.timeout / timedelta(milliseconds=1)), int(forwarding_ms * _FORWARDING_SHARE))
