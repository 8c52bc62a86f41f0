"""Kafka's protocol from the client's side: one connection to a broker, and the requests that we send ourselves.

`ClientProtocol` frames requests and matches responses without I/O; `BlockingConnection` runs it on a socket. `fetch`
and `metadata` encode their requests by hand, `messages` takes kio's message classes. Between nodes,
`node_connection.NodeConnection` runs it on the event loop, and `node_connections.NodeConnections` has one per node.
"""

from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address, parse_bootstrap_servers
from ottla.rpc.blocking import BlockingConnection
from ottla.rpc.client_protocol import ClientProtocol, Response, ResponseError, encode_request

__all__ = [
    "Address",
    "ApiKey",
    "BlockingConnection",
    "ClientProtocol",
    "Response",
    "ResponseError",
    "encode_request",
    "parse_bootstrap_servers",
]
