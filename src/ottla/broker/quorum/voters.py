"""The voters of the quorum (`controller.quorum.voters`) and their addresses."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from ottla.broker.services import NodeServices
from ottla.model.config import BrokerConfig
from ottla.rpc.addresses import Address

_DEFAULT_LISTENER = "CONTROLLER"
# KIP-595: the address of a voter that is not known when the node starts.
_UNKNOWN = Address("0.0.0.0", 0)


class VoterEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


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
    """A node without `controller.quorum.voters` is its own quorum."""
    return tuple(parse_voters(config.get_list("controller.quorum.voters"))) or (config.node_id,)


def must_find_voters(config: BrokerConfig) -> bool:
    """Whether this node is only a broker, and knows some controllers but not who votes."""
    is_controller = "controller" in config.get_list("process.roles")
    return not is_controller and not config.get_list("controller.quorum.voters")


def controller_listener_name(config: BrokerConfig) -> str:
    """The listener on which controllers reach each other: the first one, as in Kafka."""
    return next(iter(config.get_list("controller.listener.names")), _DEFAULT_LISTENER).upper()


def voter_endpoints(services: NodeServices) -> dict[int, VoterEndpoint]:
    """Where the voters can be reached, as far as it is known."""
    found = {node_id: voter_endpoint(services, node_id) for node_id in voter_ids(services.config)}
    return {node_id: end_point for node_id, end_point in found.items() if end_point is not None}


def voter_endpoint(services: NodeServices, node_id: int) -> VoterEndpoint | None:
    """As configured, or else as the voter has registered. None if it is not known, or if the node is no voter."""
    config = services.config
    static = parse_voters(config.get_list("controller.quorum.voters"))
    if node_id not in (static or (config.node_id,)):
        return None
    listener = controller_listener_name(config)
    address = static.get(node_id, _UNKNOWN)
    if address != _UNKNOWN:
        return VoterEndpoint(listener, *address)
    controller = services.metadata.image.controllers.get(node_id)
    for end_point in () if controller is None else controller.end_points:
        if end_point.name.upper() == listener:
            return VoterEndpoint(listener, end_point.host, end_point.port)
    return None
