"""Decodes messages of clients. Checks every length against the available bytes before it allocates memory.

kio's native reader is faster, but it trusts the length of an array: for a request of ten bytes that claims two billion
elements it allocates memory for all of them, and the process aborts (docs/decisions/0002). So this decoder reads what
comes from a socket. Produce and Fetch, for which speed matters, have their own codecs.
"""

from collections.abc import Callable
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from typing import Any
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.primitives import ELEMENTS_MAX, STRING_BYTES_MAX, count_elements
from ottla.protocol.schema import default_of, entity_in, is_array, is_optional, kafka_type
from ottla.protocol.varint import Buffer, read_uvarint

Read = Callable[[Buffer, int], tuple[Any, int]]


class BoundedRequest(bytes):
    """A request that is long enough to have more than `ELEMENTS_MAX` elements in its arrays, which is not allowed."""

    _elements = 0

    def add_elements(self, count: int) -> None:
        """Call it before reading `count` elements. Raises MalformedRequest if there are too many."""
        try:
            self._elements = count_elements(self._elements, count)
        except ValueError as error:
            raise MalformedRequest(str(error)) from None


def bounded(body: memoryview) -> Buffer:
    """`body` for `entity_reader`. A short body cannot have too many elements, because each takes at least one byte."""
    return body if len(body) <= ELEMENTS_MAX else BoundedRequest(body)


def _fixed(layout: str, convert: Callable[[Any], Any] | None = None) -> Read:
    structure = Struct(layout)
    unpack, size = structure.unpack_from, structure.size

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        end = position + size
        if end > len(data):
            raise MalformedRequest(f"the message ends {end - len(data)} bytes inside a field of {size} bytes")
        (value,) = unpack(data, position)
        return (value if convert is None else convert(value)), end

    return read


def _error_code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError as error:
        raise MalformedRequest(f"{value} is not an error code") from error


def _datetime(value: int) -> datetime | None:
    if value == -1:
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise MalformedRequest(f"{value} ms is not a valid timestamp") from error


def _milliseconds(value: int) -> timedelta:
    try:
        return timedelta(milliseconds=value)
    except OverflowError as error:
        raise MalformedRequest(f"{value} ms is too long") from error


_FIXED: dict[str, Read] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "uint8": _fixed(">B"),
    "uint16": _fixed(">H"),
    "uint32": _fixed(">I"),
    "uint64": _fixed(">Q"),
    "float64": _fixed(">d"),
    "bool": _fixed(">b", bool),
    "uuid": _fixed(">16s", lambda raw: None if raw == bytes(16) else UUID(bytes=raw)),
    "error_code": _fixed(">h", _error_code),
    "timedelta_i32": _fixed(">i", _milliseconds),
    "timedelta_i64": _fixed(">q", _milliseconds),
    "datetime_i64": _fixed(">q", _datetime),
}
_INT16 = _FIXED["int16"]
_INT32 = _FIXED["int32"]


def _uvarint(data: Buffer, position: int) -> tuple[int, int]:
    try:
        return read_uvarint(data, position)
    except (IndexError, ValueError) as error:
        raise MalformedRequest(f"a varint cannot be read: {error}") from error


def _compact_length(data: Buffer, position: int) -> tuple[int, int]:
    value, position = _uvarint(data, position)
    return value - 1, position


def _sized(read_length: Read, is_text: bool, optional: bool) -> Read:
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_length(data, position)
        if length < 0:
            if optional and length == -1:
                return None, position
            raise MalformedRequest(f"a required field has the length {length}")
        end = position + length
        if end > len(data):
            raise MalformedRequest(f"a field claims {length} bytes where {len(data) - position} are left")
        if is_text and length > STRING_BYTES_MAX:
            raise MalformedRequest(f"a string has {length} bytes: the protocol allows {STRING_BYTES_MAX}")
        raw = bytes(data[position:end])
        if not is_text:
            return raw, end
        try:
            return raw.decode(), end
        except UnicodeDecodeError as error:
            raise MalformedRequest("a string is not UTF-8") from error

    return read


def _array(read_length: Read, item: Read, optional: bool) -> Read:
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_length(data, position)
        if length < 0:
            if optional and length == -1:
                return None, position
            raise MalformedRequest(f"a required array has the length {length}")
        if length > len(data) - position:  # each element has at least one byte
            raise MalformedRequest(
                f"an array claims {length} elements where {len(data) - position} bytes are left"
            )
        if isinstance(data, BoundedRequest):
            data.add_elements(length)
        items = []
        for _ in range(length):
            value, position = item(data, position)
            items.append(value)
        return tuple(items), position

    return read


def _nullable_entity(read_entity: Read) -> Read:
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        marker, position = _FIXED["int8"](data, position)  # KIP-893
        return (None, position) if marker < 0 else read_entity(data, position)

    return read


def _nullable_tagged_entity(read_entity: Read) -> Read:
    def read(data: Buffer, position: int) -> tuple[Any, int]:
        marker, position = _uvarint(data, position)  # KIP-893: in tagged fields the marker is a varint
        return (None, position) if marker == 0 else read_entity(data, position)

    return read


def _field_reader(field: Field[Any], flexible: bool, tagged: bool) -> Read:
    entity = entity_in(field.type)
    if entity is not None:
        item = entity_reader(entity)
    elif (name := kafka_type(field)) in _FIXED:
        item = _FIXED[name]
    else:
        is_text = name == "string"
        length: Read = _compact_length if flexible else (_INT16 if is_text else _INT32)
        item = _sized(length, is_text, is_optional(field.type) and not is_array(field.type))
    if is_array(field.type):
        return _array(_compact_length if flexible else _INT32, item, is_optional(field.type))
    if entity is not None and is_optional(field.type):
        return _nullable_tagged_entity(item) if tagged else _nullable_entity(item)
    return item


@cache
def entity_reader(schema: type) -> Read:
    """A function (data, position) -> (message, end) for a kio message class."""
    flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Read]] = []
    by_tag: dict[int, tuple[str, Read]] = {}
    defaults: dict[str, object] = {}
    for field in fields(schema):
        tag = field.metadata.get("tag")
        reader = _field_reader(field, flexible, tag is not None)
        if tag is None:
            plain.append((field.name, reader))
        else:
            by_tag[tag] = (field.name, reader)
            defaults[field.name] = default_of(field)

    def read(data: Buffer, position: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, reader in plain:
            values[name], position = reader(data, position)
        if flexible:
            position = _read_tags(data, position, by_tag, values)
        return schema(**values), position

    return read


def _read_tags(
    data: Buffer, position: int, known: dict[int, tuple[str, Read]], values: dict[str, object]
) -> int:
    count, position = _uvarint(data, position)
    if count and isinstance(data, BoundedRequest):
        data.add_elements(count)
    for _ in range(count):
        tag, position = _uvarint(data, position)
        size, position = _uvarint(data, position)
        end = position + size
        if end > len(data):
            raise MalformedRequest(
                f"tagged field {tag} claims {size} bytes where {len(data) - position} are left"
            )
        if tag in known:
            name, reader = known[tag]
            values[name], read_to = reader(data, position)
            if read_to != end:
                raise MalformedRequest(f"tagged field {tag} is {size} bytes long, but its value is not")
        position = end
    return position
