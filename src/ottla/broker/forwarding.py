"""Forwards requests that only the active controller can serve (KIP-590).

A broker wraps the client's request, as it was sent, in an Envelope and sends it to the active controller. The response
in the Envelope goes to the client as it is. If this node is the active controller, it serves the request itself.
"""

import ipaddress
from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING

from ottla.broker.connection import ResponseParts
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP, prepare
from ottla.broker.promise import Promise
from ottla.model.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.primitives import NO_TAGS, encode_compact_string

if TYPE_CHECKING:
    from ottla.broker.dispatch import BodyHandler, RequestContext
    from ottla.broker.services import BrokerServices

# Each has a client of its own: the controller serves one request of a connection after the other, and these may wait.
VOTER_CHANGES = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER)
FORWARDED_APIS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        *VOTER_CHANGES,
    }
)

# DefaultPrincipalData v0 in Kafka: version, type, name, whether a token authenticated it. Nobody is authenticated yet.
_ANONYMOUS = (
    pack(">h", 0) + encode_compact_string("User") + encode_compact_string("ANONYMOUS") + b"\0" + NO_TAGS
)
_NO_IP_ADDRESS = bytes([127, 0, 0, 1])


def forwarding_handler(
    serve_here: "BodyHandler",
    is_for_this_node: Callable[["BrokerServices", int, memoryview], bool] | None = None,
) -> "BodyHandler":
    """A handler that serves the request here, or has the active controller serve it.

    `is_for_this_node` tells by version and body whether the controller cannot serve the request. It decodes the body.
    """

    def handle(
        services: "BrokerServices", context: "RequestContext", body: memoryview
    ) -> ResponseParts | Promise[ResponseParts]:
        if services.controller.is_local:
            return serve_here(services, context, body)
        if is_for_this_node is None:
            return forward(services, context, body)
        decided = prepare(
            services,
            lambda: is_for_this_node(services, context.version, body),
            in_thread=len(body) > REQUEST_BYTES_ON_LOOP,
        )
        return decided.then(lambda is_here: (serve_here if is_here else forward)(services, context, body))

    def forward(
        services: "BrokerServices", context: "RequestContext", body: memoryview
    ) -> Promise[ResponseParts]:
        return services.tasks.run(_forward(services, context, body, serve_here))

    return handle


async def _forward(
    services: "BrokerServices", context: "RequestContext", body: memoryview, serve_here: "BodyHandler"
) -> ResponseParts | Promise[ResponseParts]:
    from kio.schema.envelope.v0.request import EnvelopeRequest

    from ottla.rpc.client_protocol import encode_request

    header = context.header
    api_key = ApiKey(header.api_key)
    request = encode_request(
        api_key, header.api_version, header.correlation_id, header.client_id, bytes(body)
    )
    envelope = EnvelopeRequest(
        request_data=request[4:],  # without the size
        request_principal=_ANONYMOUS,
        client_host_address=_client_address(context.connection.stream.peer),
    )
    try:
        response = await services.voter_changes.get(api_key, services.controller).forward(envelope)
    except KafkaError:
        # This node may lead by now. If it does not, every element of the response gets an error that clients retry.
        return serve_here(services, context, body)
    return [pack(">i", len(response)) + response]


def _client_address(peer: str) -> bytes:
    try:
        return ipaddress.ip_address(peer.rpartition(":")[0].strip("[]")).packed
    except ValueError:
        return _NO_IP_ADDRESS
