"""The brokers of a cluster, and requests to one of them that confluent-kafka has no call for."""

from typing import Any, NamedTuple, TypeVar

from ottla.admin.cluster import REQUEST_TIMEOUT_S, Cluster, ClusterError, UnreachableError
from ottla.rpc import Address, BlockingConnection, ResponseError, messages

_ResponseT = TypeVar("_ResponseT")
_CLIENT_ID = "ottla"


class Node(NamedTuple):
    """A broker, and where it listens."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


def list_nodes(cluster: Cluster) -> list[Node]:
    """Sorted by id."""
    return sorted(Node(broker.id, broker.host, broker.port) for broker in cluster.metadata().brokers.values())


def call(node: Node, request: Any, response_type: type[_ResponseT], what: str) -> _ResponseT:
    """Sends a kio message on a new connection and returns the response. Raises ClusterError.

    The request and the response type must be of the same version. Error messages begin with `what`.
    """
    try:
        with BlockingConnection(Address(node.host, node.port), _CLIENT_ID, REQUEST_TIMEOUT_S) as connection:
            return messages.call(connection, request, response_type)
    except ResponseError as error:
        raise ClusterError(f"{what}: the response of broker {node} cannot be read ({error})") from None
    except OSError as error:
        raise UnreachableError(f"{what}: broker {node} does not respond ({error})") from None
