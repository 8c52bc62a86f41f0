"""The nodes of the cluster as clients see them in Metadata, FindCoordinator, DescribeCluster and DescribeQuorum."""

from typing import NamedTuple

from ottla.broker.services import NodeServices
from ottla.env.network import Stream


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def nodes_for_client(services: NodeServices, stream: Stream) -> list[Node]:
    """The brokers with the addresses where the client at the other end of `stream` can reach them.

    Our own address is the one that the client has connected to, unless one is advertised. So it always resolves, which
    a default taken from the host's name may not do on the client's side.
    """
    config = services.config
    nodes = []
    for broker in services.metadata.image.brokers.values():
        if broker.broker_id == config.node_id:
            advertised = config.advertised_listeners
            host, port = (advertised[0].host, advertised[0].port) if advertised else stream.local_address
            nodes.append(Node(broker.broker_id, host, port, broker.rack))
        elif broker.is_active and broker.end_points:
            end_point = broker.end_points[0]
            nodes.append(Node(broker.broker_id, end_point.host, end_point.port, broker.rack))
    return nodes


def controller_id_for_clients(services: NodeServices) -> int:
    """Any broker serves administrative requests (KIP-590): old clients, which look for the controller, get this one."""
    return services.config.node_id
