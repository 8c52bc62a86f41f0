"""What AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter have in common (KIP-853)."""

from typing import Any, NamedTuple

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse

from ottla import __version__
from ottla.broker.quorum.voters import controller_listener_name
from ottla.broker.services import NodeServices
from ottla.core.controller.image import KRAFT_VERSION
from ottla.core.raft.voter_set import Voter, VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.messages import decode_message, encode_message
from ottla.rpc.node_connection import NodeConnection


class Rejection(NamedTuple):
    code: ErrorCode
    message: str | None


def read_voter(request: Any, kraft_versions: tuple[int, int]) -> Voter:
    """The voter in an AddRaftVoter or UpdateRaftVoter request."""
    endpoints = (VoterEndpoint(each.name, each.host, int(each.port)) for each in request.listeners)
    return Voter(int(request.voter_id), request.voter_directory_id, tuple(endpoints), kraft_versions)


def rejection_of_sender(services: NodeServices, cluster_id: str | None) -> Rejection | None:
    node = services.quorum.driver.node
    if cluster_id is not None and cluster_id != services.cluster_id:
        return Rejection(ErrorCode.inconsistent_cluster_id, f"this cluster is {services.cluster_id}")
    if not node.is_leader:
        return Rejection(ErrorCode.not_leader_or_follower, f"node {node.node_id} does not lead the quorum")
    return None


def rejection_of_change(services: NodeServices, cluster_id: str | None, voter: Voter) -> Rejection | None:
    rejection = rejection_of_sender(services, cluster_id)
    if rejection is not None:
        return rejection
    if voter.id < 0 or voter.directory_id is None:
        return Rejection(ErrorCode.invalid_request, "a voter needs a node id and a directory id")
    if _default_endpoint(services, voter) is None:
        listener = controller_listener_name(services.config)
        names = ", ".join(endpoint.listener for endpoint in voter.endpoints) or "none"
        return Rejection(
            ErrorCode.invalid_request,
            f"node {voter.id} has the endpoints {names}, but not {listener}, on which controllers reach each other",
        )
    return None


def _default_endpoint(services: NodeServices, voter: Voter) -> VoterEndpoint | None:
    listener = controller_listener_name(services.config)
    return next((each for each in voter.endpoints if each.listener.upper() == listener), None)


async def kraft_versions_at(services: NodeServices, voter: Voter) -> tuple[int, int] | Rejection:
    """The versions that a new voter supports, from itself."""
    endpoint = _default_endpoint(services, voter)
    assert endpoint is not None
    timeout_s = services.config.get_int("controller.quorum.request.timeout.ms") / 1000
    connection = NodeConnection(
        services.env.network, Address(endpoint.host, endpoint.port), f"node-{services.config.node_id}"
    )
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    try:
        body = await connection.call(ApiKey.API_VERSIONS, 4, encode_message(request), timeout_s)
        response = decode_message(ApiVersionsResponse, body)
    except OSError as error:
        return Rejection(
            ErrorCode.request_timed_out,
            f"node {voter.id} does not respond at {endpoint.host}:{endpoint.port}: {error}",
        )
    finally:
        connection.close()
    found = [feature for feature in response.supported_features if feature.name == KRAFT_VERSION]
    return (int(found[0].min_version), int(found[0].max_version)) if found else (0, 0)
