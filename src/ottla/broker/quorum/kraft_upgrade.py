"""Raises kraft.version from 0 to 1 on a live quorum: its static voters become voters in the log (KIP-853)."""

from ottla.broker.quorum.quorum import Quorum
from ottla.core.controller.image import KRAFT_VERSION
from ottla.core.raft.membership import upgrade_kraft_version
from ottla.core.raft.roles import Leader
from ottla.core.raft.voter_set import Voter, VoterEndpoint, VoterSet
from ottla.model.errors import ErrorCode, KafkaError

_TIMEOUT_MS = 30_000


async def upgrade_quorum(quorum: Quorum, now_ms: int, *, validate_only: bool) -> None:
    """Raises KafkaError if this node does not lead, or does not know every voter and its directory."""
    node = quorum.driver.node
    if not isinstance(node.role, Leader):
        raise KafkaError(ErrorCode.not_controller, f"node {node.node_id} does not lead the quorum")
    voters = VoterSet.of([_voter(quorum, node.role, voter) for voter in node.voters])
    if validate_only:
        return
    change = upgrade_kraft_version(node, voters, now_ms, timeout_ms=_TIMEOUT_MS)
    try:
        await quorum.driver.change_voters(change)
    except OSError as error:
        raise KafkaError(ErrorCode.not_controller, str(error)) from error
    if change.error is not ErrorCode.none:
        raise KafkaError(change.error or ErrorCode.unknown_server_error, change.message or "")


def _voter(quorum: Quorum, leader: Leader, node_id: int) -> Voter:
    """The directory is that of the voter's fetches; the rest is in its registration (KIP-919)."""
    node = quorum.driver.node
    registered = quorum.image.controllers.get(node_id)
    directory_id = node.own.directory_id if node_id == node.node_id else leader.voters[node_id].directory_id
    if registered is None or directory_id is None:
        what = "has not registered" if registered is None else "has not fetched from this leader"
        raise KafkaError(
            ErrorCode.invalid_update_version,
            f"Voter {node_id} {what}, so its endpoints and its directory are not known. "
            "Check that it runs, and try again",
        )
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in registered.end_points)
    versions = [
        (feature.min_supported_version, feature.max_supported_version)
        for feature in registered.features
        if feature.name == KRAFT_VERSION
    ]
    return Voter(node_id, directory_id, endpoints, versions[0] if versions else (0, 0))
