"""Requests and responses as kio's message classes. Importing kio takes time: the other modules here do without."""

from io import BytesIO
from typing import Any, TypeVar

from kio.serial import entity_writer

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.rpc.blocking import BlockingConnection
from ottla.rpc.client_protocol import ResponseError

_ResponseT = TypeVar("_ResponseT")


def encode_message(message: Any) -> bytes:
    """The body of a request, without its header."""
    body = BytesIO()
    entity_writer(type(message))(body, message)
    return body.getvalue()


def decode_message(message_type: type[_ResponseT], body: memoryview) -> _ResponseT:
    """Raises ResponseError for a body that is not such a response."""
    schema: Any = message_type
    try:
        message: _ResponseT = entity_reader(schema)(body, 0)[0]
    except MalformedRequest as error:
        raise ResponseError(f"{schema.__name__} v{schema.__version__} cannot be read: {error}") from None
    return message


def call(connection: BlockingConnection, request: Any, response_type: type[_ResponseT]) -> _ResponseT:
    """Sends a request and returns its response. Both message classes must be of the same version."""
    api_key, version = ApiKey(request.__api_key__), request.__version__
    return decode_message(response_type, connection.call(api_key, version, encode_message(request)))
