"""Converts messages between versions: requests of any version to the newest, responses of the newest to any version.

Fields have the same name in all versions of a message. Fields of both versions are copied, and fields that only the
target has get their default. If a message changed in another way (a field was replaced by another), the handler's
module defines `lift` or `lower`, which runs on the result.
"""

from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.decoder import Read, bounded, entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.schema import default_of, entity_in, is_array, is_optional

Converter = Callable[[Any], Any]


def decode_request(api_key: ApiKey, version: int, body: memoryview) -> tuple[Any, Any]:
    """The request as it was sent, and converted to the newest version (the same object if it is the newest)."""
    read, convert = _request_reader(api_key, version)
    try:
        # As Kafka, ignore bytes after the end: librdkafka 2.x sends three of them with Metadata v13.
        request, _ = read(bounded(body), 0)
    except MalformedRequest as error:
        raise MalformedRequest(f"{api_key.name} v{version} cannot be read: {error}") from error
    return request, convert(request)


def encode_response(api_key: ApiKey, version: int, response: Any) -> bytes:
    """`response` is in the newest version, or already in `version`."""
    schema, write = _response_writer(api_key, version)
    if type(response) is not schema:
        source: Any = type(response)
        response = converter(source, schema)(response)
    buffer = BytesIO()
    write(buffer, response)
    return buffer.getvalue()


def has_many_elements(message: Any, limit: int) -> bool:
    """Whether the arrays of a message together have more than `limit` elements. Stops counting at that number."""
    return _elements(message, limit) > limit


def _elements(message: Any, limit: int) -> int:
    found = 0
    schema: Any = type(message)
    for name, is_single, holds_entities in _array_fields(schema):
        value = getattr(message, name)
        if not value:
            continue
        items = (value,) if is_single else value
        found += len(items)
        if found > limit:
            break
        if holds_entities:
            for item in items:
                found += _elements(item, limit - found)
                if found > limit:
                    return found
    return found


@cache
def _array_fields(schema: type) -> tuple[tuple[str, bool, bool], ...]:
    """(name, whether it is a single entity and not an array, whether its elements have arrays themselves)"""
    found = []
    for field in fields(schema):
        entity = entity_in(field.type)
        holds_entities = entity is not None and bool(_array_fields(entity))
        if is_array(field.type) or holds_entities:
            found.append((field.name, not is_array(field.type), holds_entities))
    return tuple(found)


def load_schemas(api_key: ApiKey, version: int) -> None:
    """Imports kio's modules for a request and its response, which takes some 10 ms each."""
    _request_reader(api_key, version)
    _response_writer(api_key, version)


# Finding a schema in kio's index takes longer than reading a small message.
@cache
def _request_reader(api_key: ApiKey, version: int) -> tuple[Read, Converter]:
    schema = load_request_schema(api_key, version)
    newest = load_request_schema(api_key, APIS[api_key].max_version)
    return entity_reader(schema), converter(schema, newest)


@cache
def _response_writer(api_key: ApiKey, version: int) -> tuple[Any, Callable[[BytesIO, Any], None]]:
    schema: Any = load_response_schema(api_key, version)
    return schema, entity_writer(schema)


@cache
def converter(source: type, target: type) -> Converter:
    """A function that converts instances of `source` to `target`, which are kio classes of the same message."""
    if source is target:
        return lambda value: value
    source_fields = {field.name: field for field in fields(source)}
    carried: list[tuple[str, Converter | None]] = []
    defaults: dict[str, object] = {}
    for field in fields(target):
        if field.name in source_fields:
            carried.append((field.name, _field_converter(source_fields[field.name], field)))
        else:
            defaults[field.name] = default_of(field)

    def convert(value: Any) -> Any:
        arguments = dict(defaults)
        for name, convert_field in carried:
            item = getattr(value, name)
            arguments[name] = item if convert_field is None else convert_field(item)
        return target(**arguments)

    return convert


def _field_converter(source: Field[Any], target: Field[Any]) -> Converter | None:
    inner_source, inner_target = entity_in(source.type), entity_in(target.type)
    if inner_source is not None and inner_target is not None:
        convert = converter(inner_source, inner_target)
        if is_array(target.type):
            missing = None if is_optional(target.type) else ()
            return lambda items: missing if items is None else tuple(convert(item) for item in items)
        return lambda item: None if item is None else convert(item)
    if is_optional(source.type) and not is_optional(target.type):
        default = default_of(target)
        return lambda item: default if item is None else item
    return None
