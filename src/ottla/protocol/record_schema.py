"""Declares records of internal logs: plain dataclasses with kio's field metadata, so that kio can write them. A UUID of
zeros is None, as in kio's own messages.

A record is declared once, in its newest version. `since` is the first version of a field that older versions do not
have; `schema_of` makes the dataclass of an older version.
"""

from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar

from kio.static.constants import EntityType

from ottla.protocol.schema import entity_in, is_array, is_optional

BOOL = {"kafka_type": "bool"}
INT8 = {"kafka_type": "int8"}
INT16 = {"kafka_type": "int16"}
INT32 = {"kafka_type": "int32"}
INT64 = {"kafka_type": "int64"}
UINT16 = {"kafka_type": "uint16"}
STRING = {"kafka_type": "string"}
BYTES = {"kafka_type": "bytes"}
UUID = {"kafka_type": "uuid"}


class RecordSchema:
    """The attributes that kio reads from a class. `__api_key__` identifies the types of a log."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.data
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[int] = 0
    __first_flexible__: ClassVar[int] = 0
    __api_key__: ClassVar[int]


class NestedSchema(RecordSchema):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested


@cache
def schema_of(record_type: Any, version: int) -> Any:
    """The dataclass of a record in `version`; `record_type` itself for the newest version."""
    if version == record_type.__version__:
        return record_type
    flexible = bool(record_type.__flexible__) and version >= record_type.__first_flexible__
    kept = [each for each in fields(record_type) if _is_in(each, version)]
    return _dataclass(record_type, version, flexible, kept)


def _dataclass(record_type: type[Any], version: int, flexible: bool, kept: list[Field[Any]]) -> type[Any]:
    return make_dataclass(
        record_type.__name__,
        [(each.name, _type_in(each, version, flexible), copy_field(each)) for each in kept],
        namespace={"__type__": record_type.__type__, "__flexible__": flexible, "__version__": version},
        frozen=True,
    )


def _is_in(each: Field[Any], version: int) -> bool:
    return bool(each.metadata.get("since", 0) <= version)


def _type_in(each: Field[Any], version: int, flexible: bool) -> Any:
    entity = entity_in(each.type)
    if entity is None:
        return each.type
    nested: Any = _dataclass(
        entity, version, flexible, [one for one in fields(entity) if _is_in(one, version)]
    )
    if is_array(each.type):
        nested = tuple[nested, ...]
    return nested | None if is_optional(each.type) else nested


def copy_field(each: Field[Any]) -> Any:
    if each.default is MISSING:
        return field(metadata=dict(each.metadata), kw_only=True)
    return field(metadata=dict(each.metadata), default=each.default, kw_only=True)
