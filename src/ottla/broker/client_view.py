"""The nodes of the cluster as clients see them in Metadata, FindCoordinator, DescribeCluster and DescribeQuorum."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.connection import ClientConnection
from ottla.broker.services import NodeServices
from ottla.protocol.metadata_records.records import Endpoint
from ottla.rpc.addresses import Address


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


def nodes_for_client(
    services: NodeServices, connection: ClientConnection, *, with_fenced: bool = False
) -> list[Node]:
    """The brokers with the addresses where the client at the other end of `connection` can reach them.

    Our own address is the one that the client has connected to, unless one is advertised. So it always resolves, which
    a default taken from the host's name may not do on the client's side. Another broker has the address of its listener
    of the same name: clients inside and outside of a network see different addresses (KIP-103).
    """
    config, name = services.config, connection.listener_name
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    nodes = []
    for broker in services.metadata.image.brokers.values():
        if broker.broker_id == config.node_id and not (broker.fenced and with_fenced):
            own = advertised.get(name)
            host, port = (own.host, own.port) if own is not None else connection.stream.local_address
            nodes.append(Node(broker.broker_id, host, port, broker.rack))
        elif not broker.fenced or with_fenced:
            end_point = find_end_point(broker.end_points, name)
            if end_point is not None:
                node = Node(broker.broker_id, end_point.host, end_point.port, broker.rack, broker.fenced)
                nodes.append(node)
    return nodes


def controllers_for_client(services: NodeServices, connection: ClientConnection) -> list[Node]:
    """The registered controllers with the addresses of their listeners of the same name (KIP-919)."""
    nodes = []
    for controller in services.metadata.image.controllers.values():
        end_point = find_end_point(controller.end_points, connection.listener_name)
        if end_point is not None:
            nodes.append(Node(controller.controller_id, end_point.host, end_point.port, None))
    return nodes


def find_end_point(end_points: Iterable[Endpoint], listener_name: str) -> Endpoint | None:
    return next((each for each in end_points if each.name == listener_name), None)


def broker_address(services: NodeServices, broker_id: int) -> Address | None:
    """Where other brokers reach a broker: its listener for them, `inter.broker.listener.name` (KIP-103)."""
    config = services.config
    broker = services.metadata.image.brokers.get(broker_id)
    name = config.get_str("inter.broker.listener.name").upper() or config.broker_listeners[0].name
    end_point = None if broker is None else find_end_point(broker.end_points, name)
    return None if end_point is None else Address(end_point.host, end_point.port)


def controller_id_for_clients(services: NodeServices) -> int:
    """Any broker serves administrative requests (KIP-590): old clients, which look for the controller, get this one."""
    return services.config.node_id
