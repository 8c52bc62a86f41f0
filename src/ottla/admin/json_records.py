"""Records as JSON lines: the format that `ottla consume --json` writes and `ottla produce --json` reads.

Keys and values are text. Bytes that are not UTF-8 are in base64, under `key_base64` and `value_base64`.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

# The type of confluent-kafka, which takes text too.
_Headers = list[tuple[str, str | bytes | None]]
_KNOWN = {"topic", "partition", "offset", "timestamp", "timestamp_type", "leader_epoch", "headers"} | {
    "key",
    "key_base64",
    "value",
    "value_base64",
}


class OutgoingRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: _Headers
    partition: int | None
    timestamp: int | None


def record_from_json(line: str | bytes) -> OutgoingRecord:
    """Raises ValueError, with what was expected, if the line is not a record."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('expected an object such as {"key": "a", "value": "b"}')
    unknown = fields.keys() - _KNOWN
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}; the fields are {', '.join(sorted(_KNOWN))}")
    return OutgoingRecord(
        _bytes_of(fields, "key"),
        _bytes_of(fields, "value"),
        _headers_of(fields.get("headers")),
        _integer(fields, "partition"),
        _integer(fields, "timestamp"),
    )


def record_to_json(message: Any) -> str:
    """One line for a message of confluent-kafka."""
    fields: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }
    kind, timestamp = message.timestamp()
    if kind:
        fields["timestamp"] = timestamp
    _put_bytes(fields, "key", message.key())
    _put_bytes(fields, "value", message.value())
    headers = message.headers()
    if headers:
        fields["headers"] = [_header(name, value) for name, value in headers]
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": name}
    _put_bytes(fields, "value", value)
    return fields


def _put_bytes(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode("ascii")


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64: {encoded!r}") from None
    value = fields.get(name)
    if value is None:
        return None
    # A value that is JSON itself, as in {"value": {"id": 1}}, is sent as JSON.
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8")


def _headers_of(headers: Any) -> _Headers:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(name, _bytes_of({"value": value}, "value")) for name, value in headers.items()]
    if isinstance(headers, list) and all(
        isinstance(h, dict) and isinstance(h.get("name"), str) for h in headers
    ):
        return [(header["name"], _bytes_of(header, "value")) for header in headers]
    raise ValueError('headers: expected {"name": "value"} or [{"name": "n", "value": "v"}]')


def _integer(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: expected a number from 0, got {value!r}")
    return value
