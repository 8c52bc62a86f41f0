"""Envelope, version 0 (KIP-590): a request of a client that a broker forwards to the active controller.

The dispatcher of the controller's listener serves the request inside, so this module only wraps its response.
"""

from struct import Struct

from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import RequestContext
from ottla.broker.forwarding import FORWARDED_APIS
from ottla.broker.promise import Promise
from ottla.broker.services import NodeServices
from ottla.model.errors import ErrorCode
from ottla.protocol.errors import MalformedRequest

_API_KEY = Struct(">h")
_SIZE_BYTES = 4


def handle(
    services: NodeServices, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | Promise[EnvelopeResponse]:
    if not services.controller.is_local:
        return EnvelopeResponse(error_code=ErrorCode.not_controller)
    embedded = request.request_data
    if len(embedded) < _API_KEY.size or _API_KEY.unpack_from(embedded)[0] not in FORWARDED_APIS:
        return EnvelopeResponse(error_code=ErrorCode.invalid_request)
    context.connection.forwards_requests = True
    try:
        served = context.connection.dispatch(context.connection, embedded)
    except MalformedRequest:
        return EnvelopeResponse(error_code=ErrorCode.unsupported_version)
    if isinstance(served, Promise):
        return served.then(_wrap)
    return _wrap(served)


def _wrap(parts: ResponseParts) -> EnvelopeResponse:
    response = b"".join(
        bytes(part) for part in parts or () if isinstance(part, bytes | bytearray | memoryview)
    )
    return EnvelopeResponse(response_data=response[_SIZE_BYTES:], error_code=ErrorCode.none)
