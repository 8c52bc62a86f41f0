"""Requests of any version, built field by field with kio and sent on a plain socket, also invalid ones."""

import datetime
import struct
import types
import typing
from dataclasses import fields, is_dataclass
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from tests.interop.wire import WireClient, request

from ottla.protocol.decoder import entity_reader


class KioClient:
    """`ask(api_key, version, field=...)`: nested messages are dicts, times are in milliseconds."""

    def __init__(self, bootstrap: str, timeout_s: float = 10.0) -> None:
        self._wire = WireClient(bootstrap, timeout_s)

    def ask(self, api_key: int, version: int, **values: Any) -> Any:
        self.send(api_key, version, **values)
        return self.receive(api_key, version)

    def send(self, api_key: int, version: int, **values: Any) -> None:
        schema: Any = load_request_schema(api_key, version)
        body = BytesIO()
        entity_writer(schema)(body, build(schema, values))
        self._wire.send(request(api_key, version, body.getvalue(), flexible=schema.__flexible__))

    def receive(self, api_key: int, version: int) -> Any:
        answer = self._wire.receive()
        response: Any = load_response_schema(api_key, version)
        header = 5 if response.__header_schema__.__flexible__ else 4
        return read(response, answer[header:])

    def close(self) -> None:
        self._wire.close()


def build(schema: Any, values: dict[str, Any]) -> Any:
    types_of = typing.get_type_hints(schema)
    known = {field.name: field for field in fields(schema)}
    arguments = {}
    for name, value in values.items():
        nested = _message_in(types_of[name])
        if nested is not None and value is not None:
            value = tuple(build(nested, item) for item in value)
        elif "timedelta" in known[name].metadata.get("kafka_type", ""):
            value = datetime.timedelta(milliseconds=value)
        arguments[name] = value
    return schema(**arguments)


def read(schema: Any, data: bytes) -> Any:
    """With Ottla's reader: kio's rejects the timestamp -1, which means none."""
    value, _ = entity_reader(schema)(memoryview(data), 0)
    return value


def errors_in(response: Any) -> list[str]:
    """The names of all errors in a response, outermost first."""
    found: list[str] = []
    code = getattr(response, "error_code", getattr(response, "partition_error_code", ErrorCode.none))
    if code is not ErrorCode.none:
        found.append(ErrorCode(code).name)
    for field in fields(response):
        value = getattr(response, field.name)
        if isinstance(value, tuple):
            for item in value:
                if is_dataclass(item):
                    found += errors_in(item)
    return found


def subscription(*topics: str) -> bytes:
    """The metadata of a classic consumer: ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def _message_in(hint: Any) -> Any:
    """The message class of a field that is an array of messages."""
    for part in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        inner = typing.get_args(part)
        if inner and is_dataclass(inner[0]):
            return inner[0]
    return None
