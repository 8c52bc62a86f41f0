"""The nodes of a cluster, and requests to one of them that confluent-kafka has no call for."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from ottla.admin.cluster import REQUEST_TIMEOUT_S, Cluster, ClusterError, UnreachableError
from ottla.model.errors import ErrorCode
from ottla.rpc import Address, BlockingConnection, ResponseError, messages, parse_bootstrap_servers

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
    return _call(Address(node.host, node.port), f"broker {node}", request, response_type, what)


def call_any(
    cluster: Cluster,
    request: Any,
    response_type: type[_ResponseT],
    what: str,
    *,
    is_final: Callable[[_ResponseT], bool] = lambda response: True,
) -> _ResponseT:
    """Likewise, but asks the addresses of `cluster.bootstrap` until one gives a final response; else takes the last.

    A request about the cluster has the same response from every broker. An address may also be a controller's.
    """
    *others, last = parse_bootstrap_servers(cluster.bootstrap)
    for address in others:
        try:
            response = _call(address, f"the node at {address}", request, response_type, what)
        except UnreachableError:
            continue
        if is_final(response):
            return response
    return _call(last, f"the node at {last}", request, response_type, what)


def _call(
    address: Address, name: str, request: Any, response_type: type[_ResponseT], what: str
) -> _ResponseT:
    try:
        with BlockingConnection(address, _CLIENT_ID, REQUEST_TIMEOUT_S) as connection:
            return messages.call(connection, request, response_type)
    except ResponseError as error:
        raise ClusterError(f"{what}: the response of {name} cannot be read ({error})") from None
    except OSError as error:
        raise UnreachableError(f"{what}: {name} does not respond ({error})") from None


def check_error(response: Any, what: str, *, allowed: Collection[ErrorCode] = ()) -> None:
    """Raises ClusterError if a response has an error code, with the reason that the cluster gives."""
    code: ErrorCode = response.error_code
    if code is not ErrorCode.none and code not in allowed:
        reason = response.error_message or "the cluster gives no reason"
        raise ClusterError(f"{what}: {reason} ({code.name.upper()})")
