"""Adds voters to the quorum of controllers, and removes them (KIP-853)."""

from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.add_raft_voter.v0 import request as add_v0
from kio.schema.add_raft_voter.v0.response import AddRaftVoterResponse
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.remove_raft_voter.v0.response import RemoveRaftVoterResponse

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.nodes import call_any, check_error
from ottla.admin.quorum import describe_quorum
from ottla.model.errors import ErrorCode
from ottla.model.ids import uuid_from_string


class NewVoter(NamedTuple):
    """`end_points` as NAME://HOST:PORT."""

    node_id: int
    directory_id: str
    end_points: list[str]


def add_voter(cluster: Cluster, voter: NewVoter, timeout_s: float) -> None:
    """Asks a broker, or the leader of the quorum. Raises ClusterError."""
    what = f"Voter {voter.node_id} cannot be added"
    request = add_v0.AddRaftVoterRequest(
        cluster_id=None,
        timeout=timedelta(seconds=timeout_s),
        voter_id=voter.node_id,
        voter_directory_id=uuid_from_string(voter.directory_id),
        listeners=tuple(_listener(end_point) for end_point in voter.end_points),
    )
    check_error(call_any(cluster, request, AddRaftVoterResponse, what, is_final=_is_of_leader), what)


def _listener(end_point: str) -> add_v0.Listener:
    name, _, address = end_point.partition("://")
    host, _, port = address.rpartition(":")
    return add_v0.Listener(name=name, host=host.strip("[]"), port=int(port))


def remove_voter(cluster: Cluster, node_id: int, directory_id: str | None) -> str:
    """Returns the directory id of the voter that was removed. Raises ClusterError."""
    what = f"Voter {node_id} cannot be removed"
    if directory_id is None:
        voters = {voter.node_id: voter.directory_id for voter in describe_quorum(cluster).voters}
        if node_id not in voters:
            known = ", ".join(map(str, sorted(voters)))
            raise ClusterError(f"{what}: the voters are {known}")
        directory_id = voters[node_id]
    if directory_id is None:
        raise ClusterError(f"{what}: the voters of this cluster are static. Raise kraft.version to 1 first")
    try:
        directory = uuid_from_string(directory_id)
    except ValueError:
        raise ClusterError(f"{what}: {directory_id!r} is not a directory id") from None
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory)
    check_error(call_any(cluster, request, RemoveRaftVoterResponse, what, is_final=_is_of_leader), what)
    return directory_id


def _is_of_leader(response: Any) -> bool:
    """A controller that follows does not forward the request, as a broker does."""
    return response.error_code is not ErrorCode.not_leader_or_follower
