"""Inspects kio's message classes: dataclasses whose fields have the metadata `kafka_type` and `tag`."""

from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from ottla.model.errors import ErrorCode

# Kafka's default of each type, for fields that the sender's version does not have. Integer types have 0.
_ZEROS: dict[str, object] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(),
    "timedelta_i64": timedelta(),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}


def is_optional(annotation: Any) -> bool:
    return get_origin(annotation) in (UnionType, Union) and NoneType in get_args(annotation)


def is_array(annotation: Any) -> bool:
    return get_origin(_strip_optional(annotation)) is tuple


def entity_in(annotation: Any) -> type | None:
    """The message class in a field or in an array field; None for plain values."""
    inner = _strip_optional(annotation)
    if get_origin(inner) is tuple:
        inner = get_args(inner)[0]
    return inner if isinstance(inner, type) and is_dataclass(inner) else None


def kafka_type(field: Field[Any]) -> str:
    return str(field.metadata["kafka_type"])


def default_of(field: Field[Any]) -> object:
    """The value of a field that was not sent: its declared default, else the default of its type."""
    if field.default is not MISSING:
        return field.default
    if is_array(field.type):
        return ()
    if is_optional(field.type):
        return None
    entity = entity_in(field.type)
    if entity is not None:
        return entity(**{inner.name: default_of(inner) for inner in fields(entity)})
    return _ZEROS.get(kafka_type(field), 0)


def _strip_optional(annotation: Any) -> Any:
    if get_origin(annotation) in (UnionType, Union):
        return next(part for part in get_args(annotation) if part is not NoneType)
    return annotation
