"""Keeps this controller's entry among the voters right: its endpoints, and itself if it joins by itself (KIP-853)."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ottla.broker.services import NodeServices
from ottla.core.raft.messages import NO_NODE
from ottla.core.raft.voter_set import Voter
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.rpc.node_connections import NodeConnections

logger = logging.getLogger("ottla.quorum")

_TIMEOUT_S = 30.0


async def keep_voter_current(services: NodeServices, connections: "NodeConnections") -> None:
    """As in Kafka, a follower looks once in each fetch timeout."""
    interval_s = services.config.get_int("controller.quorum.fetch.timeout.ms") / 1000
    reported: tuple[object, ...] | None = None
    while True:
        await asyncio.sleep(interval_s)
        request = _due_request(services)
        if request is None:
            continue
        node = services.quorum.driver.node
        try:
            error = await _send(connections, node.leader_id, request)
        except (OSError, KafkaError) as failure:
            error = str(failure)
        result = (type(request), error)
        if error is not None and result != reported:
            logger.info("%s of node %d: %s", type(request).__name__, node.node_id, error)
        reported = result


def _due_request(services: NodeServices) -> Any:
    quorum = services.quorum
    node = quorum.driver.node
    if node.is_leader or node.leader_id == NO_NODE or not node.history.allows_changes:
        return None
    known = node.history.latest.get(node.node_id)
    if node.is_voter:
        return None if _is_same(known, node.own) else _update_request(services, node.own, node.epoch)
    if not services.config.get_bool("controller.quorum.auto.join.enable"):
        return None
    if known is not None:  # the voter that this node was before it got a new disk
        return _remove_request(services, known)
    return _add_request(services, node.own)


def _is_same(known: Voter | None, own: Voter) -> bool:
    """The endpoints have no order: Kafka's leader writes them in that of a hash map."""
    return known is not None and known._replace(endpoints=tuple(sorted(known.endpoints))) == own._replace(
        endpoints=tuple(sorted(own.endpoints))
    )


async def _send(connections: "NodeConnections", leader_id: int, request: Any) -> str | None:
    """Why it failed; None if it did not."""
    from kio.index import load_response_schema

    schema: Any = load_response_schema(request.__api_key__, request.__version__)
    response = await connections.call(leader_id, request, schema, _TIMEOUT_S)
    if response.error_code is ErrorCode.none:
        return None
    return getattr(response, "error_message", None) or str(response.error_code.name)


def _update_request(services: NodeServices, own: Voter, epoch: int) -> Any:
    from kio.schema.update_raft_voter.v0 import request as v0

    low, high = own.kraft_versions
    return v0.UpdateRaftVoterRequest(
        cluster_id=services.cluster_id,
        current_leader_epoch=epoch,
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=tuple(v0.Listener(name=name, host=host, port=port) for name, host, port in own.endpoints),
        k_raft_version_feature=v0.KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def _add_request(services: NodeServices, own: Voter) -> Any:
    from datetime import timedelta

    from kio.schema.add_raft_voter.v1 import request as v1

    return v1.AddRaftVoterRequest(
        cluster_id=services.cluster_id,
        timeout=timedelta(seconds=_TIMEOUT_S),
        voter_id=own.id,
        voter_directory_id=own.directory_id,
        listeners=tuple(v1.Listener(name=name, host=host, port=port) for name, host, port in own.endpoints),
        ack_when_committed=False,
    )


def _remove_request(services: NodeServices, known: Voter) -> Any:
    from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest

    return RemoveRaftVoterRequest(
        cluster_id=services.cluster_id, voter_id=known.id, voter_directory_id=known.directory_id
    )
