"""Encodes and decodes records of coordinators: a key starts with its type, a value with its version."""

from collections.abc import Mapping
from io import BytesIO
from struct import Struct
from typing import Any

from kio.serial import entity_writer

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.messages import converter
from ottla.protocol.record_schema import schema_of

TYPE = Struct(">h")
_VERSION = Struct(">h")


def encode_key(key: Any) -> bytes:
    return encode(TYPE.pack(key.__api_key__), type(key), key)


def encode_value(value: Any, version: int) -> bytes:
    return encode(_VERSION.pack(version), schema_of(value.__class__, version), value)


def encode(prefix: bytes, schema: type, message: Any) -> bytes:
    buffer = BytesIO()
    buffer.write(prefix)
    entity_writer(schema)(buffer, message)
    return buffer.getvalue()


def decode_key(key: bytes, types: Mapping[int, Any]) -> Any | None:
    """None if the type is not in `types`."""
    if len(key) < TYPE.size:
        raise corrupt(f"a key of {len(key)} bytes has no type")
    (number,) = TYPE.unpack_from(key)
    key_type = types.get(number)
    if key_type is None:
        return None
    return _decode(key, key_type, key_type.__name__)


def decode_value(value: bytes, value_type: Any) -> Any:
    """Reads any version, and converts the value to the newest."""
    version = read_version(value, value_type)
    schema = schema_of(value_type, version)
    return converter(schema, value_type)(
        _decode(value, schema, f"{value_type.__name__} of version {version}")
    )


def read_version(value: bytes, value_type: Any) -> int:
    if len(value) < _VERSION.size:
        raise corrupt(f"a {value_type.__name__} of {len(value)} bytes has no version")
    version = int(_VERSION.unpack_from(value)[0])
    if not 0 <= version <= value_type.__version__:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"a {value_type.__name__} has version {version}, written by a newer release: "
            f"this one reads up to {value_type.__version__}",
        )
    return version


def _decode(data: bytes, schema: type, name: str) -> Any:
    try:
        return entity_reader(schema)(memoryview(data), 2)[0]
    except MalformedRequest as error:
        raise corrupt(f"a {name} cannot be read: {error}") from error


def corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)
