"""Records of coordinators as bytes: a key is its type and then its fields, a value its version and then its fields."""

from collections.abc import Mapping
from io import BytesIO
from struct import Struct
from typing import Any

from kio.serial import entity_writer

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.messages import converter
from ottla.protocol.record_schema import shape_of

TYPE = Struct(">h")
VERSION = Struct(">h")


def encode_key(key: Any) -> bytes:
    return encode(TYPE.pack(key.__api_key__), type(key), key)


def encode_value(value: Any, version: int) -> bytes:
    return encode(VERSION.pack(version), shape_of(value.__class__, version), value)


def encode(prefix: bytes, shape: type, message: Any) -> bytes:
    buffer = BytesIO()
    buffer.write(prefix)
    entity_writer(shape)(buffer, message)
    return buffer.getvalue()


def decode_key(key: bytes, types: Mapping[int, Any]) -> Any | None:
    """None where the type is none of `types`."""
    if len(key) < TYPE.size:
        raise corrupt(f"a key of {len(key)} bytes has no type")
    (number,) = TYPE.unpack_from(key)
    key_type = types.get(number)
    if key_type is None:
        return None
    return _decode(key, key_type, key_type.__name__)


def decode_value(value: bytes, value_type: Any) -> Any:
    """The value in its newest version, whichever it was written in."""
    version = read_version(value, value_type)
    shape = shape_of(value_type, version)
    return converter(shape, value_type)(_decode(value, shape, f"{value_type.__name__} of version {version}"))


def read_version(value: bytes, value_type: Any) -> int:
    if len(value) < VERSION.size:
        raise corrupt(f"a {value_type.__name__} of {len(value)} bytes has no version")
    version = int(VERSION.unpack_from(value)[0])
    if not 0 <= version <= value_type.__version__:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"a {value_type.__name__} has version {version}, written by a newer release: "
            f"this one reads up to {value_type.__version__}",
        )
    return version


def _decode(data: bytes, shape: type, name: str) -> Any:
    try:
        return entity_reader(shape)(memoryview(data), 2)[0]
    except MalformedRequest as error:
        raise corrupt(f"a {name} cannot be read: {error}") from error


def corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)
