"""Reads the metrics that Kafka's clients push (KIP-714): MetricsData of OpenTelemetry, in protobuf.

Only the messages and fields that are exposed are read; the others are skipped, as protobuf allows. A reader of our own
is smaller than a dependency on protobuf with generated classes.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE, _SIGNED = Struct("<d"), Struct("<q")
_DELTA = 1


class OtlpError(ValueError):
    """The bytes are not MetricsData."""


class PushedSample(NamedTuple):
    """`is_delta`: the value is the increase since the push before."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool


def read_metrics(data: bytes) -> list[PushedSample]:
    """Raises OtlpError."""
    try:
        return [
            sample
            for of_resource in _messages(data, 1)
            for of_scope in _messages(of_resource, 2)
            for metric in _messages(of_scope, 2)
            for sample in _samples(metric)
        ]
    except (IndexError, UnicodeDecodeError, StructError) as error:
        raise OtlpError(f"the metrics are malformed: {error}") from error


def with_resource_attributes(data: bytes, attributes: dict[str, str]) -> bytes:
    """The same metrics, of a resource that has these attributes too.

    A message that occurs twice where one is expected is merged by every reader of protobuf.
    """
    pairs = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _field(1, value.encode())))
        for name, value in attributes.items()
    )
    resource = _field(1, pairs)
    return b"".join(_field(1, message + resource) for message in _messages(data, 1))


def _samples(metric: bytes) -> Iterator[PushedSample]:
    name = ""
    for number, value in _fields(metric):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            name = value.decode()
        elif number in (5, 7):  # a gauge or a sum; histograms are not sent by Kafka's clients
            options = {key: item for key, item in _fields(value) if isinstance(item, int)}
            is_counter = number == 7 and bool(options.get(3))
            is_delta = number == 7 and options.get(2) == _DELTA
            for point in _messages(value, 1):
                labels, found = _point(point)
                if found is not None:
                    yield PushedSample(name, labels, found, is_counter, is_delta)


def _point(point: bytes) -> tuple[tuple[tuple[str, str], ...], float | None]:
    labels: list[tuple[str, str]] = []
    found: float | None = None
    for number, value in _fields(point):
        if number == 4 and isinstance(value, bytes):
            found = _DOUBLE.unpack(value)[0]
        elif number == 6 and isinstance(value, bytes):
            found = _SIGNED.unpack(value)[0]
        elif number == 7 and isinstance(value, bytes):
            labels.append(_attribute(value))
    return tuple(labels), found


def _attribute(pair: bytes) -> tuple[str, str]:
    key, text = "", ""
    for number, value in _fields(pair):
        if number == 1 and isinstance(value, bytes):
            key = value.decode()
        elif number == 2 and isinstance(value, bytes):
            for kind, item in _fields(value):
                if kind == 1 and isinstance(item, bytes):
                    text = item.decode()
                elif kind == 4 and isinstance(item, bytes):
                    text = str(_DOUBLE.unpack(item)[0])
                elif isinstance(item, int):
                    text = str(item)
    return key, text


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, value in _fields(data):
        if number == wanted and isinstance(value, bytes):
            yield value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an int for a varint, bytes for all others. A fixed field has 8 or 4 bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise OtlpError(f"field {number} has the wire type {wire_type}")
        if position + size > len(data):
            raise OtlpError(f"field {number} ends after the message")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise OtlpError("a number has more than 64 bits")


def _field(number: int, data: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
