"""The connections of this node to the other nodes, one for each."""

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.env.network import Network
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.messages import decode_message, encode_message
from ottla.rpc.node_connection import NodeConnection

_ResponseT = TypeVar("_ResponseT")


class NodeConnections:
    """`address_of` is asked with every call: a node that has restarted may have another address.

    Calls raise OSError as those of NodeConnection, also for a node whose address is not known. `on_lost` is called when
    a connection is lost that this node has not closed.
    """

    def __init__(self, network: Network, client_id: str, address_of: Callable[[int], Address | None]) -> None:
        self._network = network
        self._client_id = client_id
        self._address_of = address_of
        self._connections: dict[int, NodeConnection] = {}
        self._is_closed = False
        self.on_lost: Callable[[], None] = lambda: None

    async def call(
        self, node_id: int, request: Any, response_type: type[_ResponseT], timeout_s: float
    ) -> _ResponseT:
        """Sends a kio message. Request and response must be of the same version.

        Raises ResponseError, an OSError, if the response cannot be read.
        """
        api_key, version = ApiKey(request.__api_key__), request.__version__
        body = await self.call_body(node_id, api_key, version, encode_message(request), timeout_s)
        return decode_message(response_type, body)

    async def call_body(
        self, node_id: int, api_key: ApiKey, version: int, body: bytes, timeout_s: float
    ) -> memoryview:
        return await self.connection(node_id).call(api_key, version, body, timeout_s)

    async def latest_version(
        self, node_id: int, api_key: ApiKey, timeout_s: float, *, at_least: int = 0
    ) -> int:
        """The highest version of an API that both nodes know. Raises KafkaError if it is below `at_least`."""
        offered = (await self.connection(node_id).versions(timeout_s)).get(api_key)
        known = APIS[api_key]
        if offered is not None:
            latest = min(offered[1], known.max_version)
            if latest >= max(offered[0], known.min_version, at_least):
                return latest
        versions = "does not serve it" if offered is None else f"serves v{offered[0]} to v{offered[1]}"
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"{api_key.name} is needed in v{max(known.min_version, at_least)} to v{known.max_version}, but node "
            f"{node_id} at {self.connection(node_id).address} {versions}. Upgrade that node",
        )

    def connection(self, node_id: int) -> NodeConnection:
        """The connection to a node at its current address. One to another address is closed."""
        if self._is_closed:
            raise ConnectionError(f"the connections of this node are closed, also that to node {node_id}")
        address = self._address_of(node_id)
        connection = self._connections.get(node_id)
        if connection is not None and connection.address == address:
            return connection
        self.drop(node_id)
        if address is None:
            raise ConnectionError(f"the address of node {node_id} is not known")
        connection = self._connections[node_id] = NodeConnection(
            self._network, address, self._client_id, lambda: self.on_lost()
        )
        return connection

    def drop(self, node_id: int) -> None:
        """Closes the connection to a node. A later call makes a new one."""
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self._is_closed = True
        for node_id in list(self._connections):
            self.drop(node_id)
