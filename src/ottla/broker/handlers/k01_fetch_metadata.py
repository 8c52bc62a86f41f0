"""Fetch on a controller's listener, versions 4 to 18: the metadata log, for voters and observers (KIP-595).

v17 the leader's address (KIP-853); v18 the follower's high watermark (KIP-1166). The log is fetched by its topic id, so
the versions before v13 get INVALID_REQUEST, as in Kafka. There are no fetch sessions: the session id is 0.
"""

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import RequestContext
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP
from ottla.broker.promise import Promise
from ottla.broker.quorum.voters import voter_endpoint
from ottla.broker.quorum.wire_server import build_fetch, read_fetch, rejection
from ottla.broker.services import NodeServices
from ottla.core.raft.messages import FetchResponse
from ottla.model.errors import ErrorCode
from ottla.protocol import fetch_codec
from ottla.protocol.fetch_codec import (
    FLEXIBLE_FROM,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
    encoded_size,
)
from ottla.protocol.framing import response_prefix

# Longer than any node asks for. The fetch of a client that has disconnected ends after this time.
_WAIT_MS_MAX = 10_000


def handle_body(services: NodeServices, context: RequestContext, body: memoryview) -> Promise[ResponseParts]:
    return services.tasks.run(_respond(services, context, body))


async def _respond(services: NodeServices, context: RequestContext, body: memoryview) -> ResponseParts:
    if len(body) > REQUEST_BYTES_ON_LOOP:
        request = await services.message_thread.run(lambda: decode_fetch_request(body, context.version))
    else:
        request = decode_fetch_request(body, context.version)
    response = await _fetch(services, request)
    parts = encode_fetch_response(response, context.version)
    flexible = context.version >= FLEXIBLE_FROM
    return [response_prefix(context.header.correlation_id, encoded_size(parts), flexible), *parts]


async def _fetch(services: NodeServices, request: FetchRequest) -> fetch_codec.FetchResponse:
    driver = services.quorum.driver
    node = driver.node
    fetch = read_fetch(request)
    error = rejection(services, request.cluster_id, fetch)
    if fetch is None or error is not ErrorCode.none:
        return fetch_codec.FetchResponse(0, int(error), 0, [])
    if request.max_wait_ms < 0:
        response = FetchResponse(node.epoch, node.leader_id, error=ErrorCode.invalid_request)
    else:
        max_bytes = min(request.max_bytes, services.config.get_int("controller.quorum.fetch.max.bytes"))
        wait_ms = min(request.max_wait_ms, _WAIT_MS_MAX)
        try:
            response = await driver.fetch(fetch, max_bytes=max(max_bytes, 1), max_wait_ms=wait_ms)
        except OSError:  # the node stops, or its disk fails
            return fetch_codec.FetchResponse(0, int(ErrorCode.broker_not_available), 0, [])
    return build_fetch(response, voter_endpoint(services, response.leader_id), node.log.start_offset)
