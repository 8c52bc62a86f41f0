"""The voters of the quorum (`controller.quorum.voters`) and their addresses."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.broker.quorum.quorum_state import has_dynamic_voters, read_static_voters
from ottla.broker.quorum.snapshots import list_snapshots
from ottla.broker.services import NodeServices
from ottla.core.raft.voter_set import VoterEndpoint
from ottla.env.disk import Disk
from ottla.model.config import BrokerConfig
from ottla.model.ids import METADATA_TOPIC
from ottla.rpc.addresses import Address, parse_bootstrap_servers
from ottla.storage.meta_properties import UnusableDirectoryError

if TYPE_CHECKING:
    from ottla.broker.quorum.quorum import Quorum

_DEFAULT_LISTENER = "CONTROLLER"
# KIP-595: the address of a voter that is not known when the node starts.
_UNKNOWN = Address("0.0.0.0", 0)
_FIRST_BOOTSTRAP_ID = -2
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def names_voters(disk: Disk, directory: str) -> bool:
    """Whether the metadata log has, or had, a snapshot with voters, or its node has found a quorum that has them."""
    return has_dynamic_voters(disk, directory) or any(
        snapshot.end_offset == 0 for snapshot in list_snapshots(disk, directory)
    )


@lru_cache(maxsize=8)  # every call of a controller and every fetch of its log asks for the addresses
def parse_voters(voters: tuple[str, ...]) -> Mapping[int, Address]:
    """Parses `id@host:port` items, which the config has checked. Sorted by id."""
    found = {}
    for voter in voters:
        node_id, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        found[int(node_id)] = Address(host.strip("[]"), int(port))
    return dict(sorted(found.items()))


def voter_ids(config: BrokerConfig) -> tuple[int, ...]:
    """The static voters. A node without `controller.quorum.voters` is its own quorum."""
    return tuple(parse_voters(config.get_list("controller.quorum.voters"))) or (config.node_id,)


def bootstrap_servers(config: BrokerConfig) -> Mapping[int, Address]:
    """The nodes that a controller asks for the leader as long as its log names no voters (KIP-853).

    As in Kafka, they have negative ids: it does not know yet who they are.
    """
    servers = parse_bootstrap_servers(",".join(config.get_list("controller.quorum.bootstrap.servers")))
    return {_FIRST_BOOTSTRAP_ID - index: address for index, address in enumerate(servers)}


def is_its_own_quorum(config: BrokerConfig, disk: Disk) -> bool:
    """Whether a controller without `controller.quorum.voters` is a quorum of one with static voters.

    With `controller.quorum.bootstrap.servers` it is one of a quorum with voters in the log (KIP-853), or waits to be
    added to it. Not so if it has been its own quorum before, or if it is the only server itself and was not formatted
    to join a quorum.
    """
    directory = f"{config.metadata_log_dir}/{METADATA_TOPIC}-0"
    if names_voters(disk, directory):
        return False
    known = read_static_voters(disk, directory)
    if known is not None:
        return known == (config.node_id,)
    own = {(listener.host, listener.port) for listener in config.controller_listeners}
    own |= {(host, port) for _, port in own for host in _LOOPBACK}
    return all(tuple(address) in own for address in bootstrap_servers(config).values())


def check_voters_are_known(config: BrokerConfig, disk: Disk) -> None:
    """Raises UnusableDirectoryError if the node was one of several static voters, and the config names none."""
    directory = f"{config.metadata_log_dir}/{METADATA_TOPIC}-0"
    known = read_static_voters(disk, directory)
    is_configured = any(
        config.get_list(f"controller.quorum.{name}") for name in ("voters", "bootstrap.servers")
    )
    if known is not None and known != (config.node_id,) and not is_configured:
        raise UnusableDirectoryError(
            f"the metadata log {directory} belongs to a quorum of other nodes (voters: {list(known)}), but the config "
            "does not say where they are. Set controller.quorum.voters or controller.quorum.bootstrap.servers"
        )


def must_find_voters(config: BrokerConfig) -> bool:
    """Whether this node is only a broker, and knows some controllers but not who votes."""
    is_controller = "controller" in config.get_list("process.roles")
    return not is_controller and not config.get_list("controller.quorum.voters")


def controller_listener_name(config: BrokerConfig) -> str:
    """The listener on which controllers reach each other: the first one, as in Kafka."""
    return next(iter(config.get_list("controller.listener.names")), _DEFAULT_LISTENER).upper()


def voter_endpoints(services: NodeServices) -> dict[int, VoterEndpoint]:
    """Where the voters can be reached, as far as it is known."""
    found = {node_id: voter_endpoint(services, node_id) for node_id in services.quorum.voters}
    return {node_id: end_point for node_id, end_point in found.items() if end_point is not None}


def voter_endpoint(services: NodeServices, node_id: int) -> VoterEndpoint | None:
    """As the log has it, as configured, or as the voter has registered. None if it is not known, or for no voter."""
    config, quorum = services.config, services.quorum
    listener = controller_listener_name(config)
    if (dynamic := _dynamic_endpoint(quorum, node_id, listener)) is not None:
        return dynamic
    static = parse_voters(config.get_list("controller.quorum.voters"))
    if node_id not in (static or (config.node_id,)):
        # The leader was added after kraft.version was raised, and this node does not have that part of the log yet.
        return quorum.learned.get(node_id)
    address = static.get(node_id, _UNKNOWN)
    if address != _UNKNOWN:
        return VoterEndpoint(listener, *address)
    controller = services.metadata.image.controllers.get(node_id)
    for end_point in () if controller is None else controller.end_points:
        if end_point.name.upper() == listener:
            return VoterEndpoint(listener, end_point.host, end_point.port)
    return None


def _dynamic_endpoint(quorum: "Quorum", node_id: int, listener: str) -> VoterEndpoint | None:
    """At kraft.version 1. A leader that has moved tells its new address before the log has it."""
    if quorum.has_fixed_voters:
        return None
    if node_id in quorum.learned:
        return quorum.learned[node_id]
    voter = quorum.voter_set.get(node_id)
    endpoints = () if voter is None else voter.endpoints
    return next((found for found in endpoints if found.listener.upper() == listener), None)
