"""What the records that Ottla keeps without using them replace or remove, so that a log of any length has a bounded
image: quotas, SCRAM credentials, delegation tokens, ACLs.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kio.static.primitive import f64, i8, i32, i64

from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.metadata_records.records import OpaqueRecord
from ottla.protocol.record_schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    NestedSchema,
    RecordSchema,
)

_FLOAT64 = {"kafka_type": "float64"}
_UUID_BYTES = 16

_DELEGATION_TOKEN, _SCRAM_CREDENTIAL, _QUOTA, _ACL, _ZK_MIGRATION = 10, 11, 14, 18, 21
_REMOVE_ACL, _REMOVE_SCRAM_CREDENTIAL, _REMOVE_DELEGATION_TOKEN = 19, 22, 26


class UnknownKey(NamedTuple):
    """The key of a record whose type is not known, or that cannot be read: only equal records have the same one."""

    api_key: int
    version: int
    body: bytes


class OpaqueChange(NamedTuple):
    """A record replaces, or removes, an earlier one with the same key."""

    key: Hashable
    is_removal: bool


def opaque_change(record: OpaqueRecord) -> OpaqueChange:
    try:
        return OpaqueChange(*_KEYS[record.api_key](record.body))
    except (KeyError, MalformedRequest):
        return OpaqueChange(UnknownKey(record.api_key, record.version, record.body), is_removal=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuotaEntity(NestedSchema):
    entity_type: str = field(metadata=STRING)
    entity_name: str | None = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quota(RecordSchema):
    entity: tuple[_QuotaEntity, ...]
    key: str = field(metadata=STRING)
    value: f64 = field(metadata=_FLOAT64)
    remove: bool = field(metadata=BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScramCredential(RecordSchema):
    name: str = field(metadata=STRING)
    mechanism: i8 = field(metadata=INT8)
    salt: bytes = field(metadata=BYTES)
    stored_key: bytes = field(metadata=BYTES)
    server_key: bytes = field(metadata=BYTES)
    iterations: i32 = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemoveScramCredential(RecordSchema):
    name: str = field(metadata=STRING)
    mechanism: i8 = field(metadata=INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DelegationToken(RecordSchema):
    owner: str = field(metadata=STRING)
    requester: str = field(metadata=STRING)
    renewers: tuple[str, ...] = field(metadata=STRING)
    issue_timestamp: i64 = field(metadata=INT64)
    max_timestamp: i64 = field(metadata=INT64)
    expiration_timestamp: i64 = field(metadata=INT64)
    token_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemoveDelegationToken(RecordSchema):
    token_id: str = field(metadata=STRING)


def _read(schema: type, body: bytes) -> Any:
    return entity_reader(schema)(memoryview(body), 0)[0]


def _quota(body: bytes) -> tuple[Hashable, bool]:
    quota = _read(_Quota, body)
    entity = frozenset((part.entity_type, part.entity_name) for part in quota.entity)
    return (_QUOTA, entity, quota.key), quota.remove


def _scram_credential(schema: type, body: bytes) -> Hashable:
    credential = _read(schema, body)
    return _SCRAM_CREDENTIAL, credential.name, credential.mechanism


def _acl(body: bytes) -> Hashable:
    if len(body) < _UUID_BYTES:
        raise MalformedRequest(f"an ACL of {len(body)} bytes has no id")
    return _ACL, body[:_UUID_BYTES]


# (body) -> (key, whether the record removes the one with that key)
_KEYS: dict[int, Callable[[bytes], tuple[Hashable, bool]]] = {
    _QUOTA: _quota,
    _SCRAM_CREDENTIAL: lambda body: (_scram_credential(_ScramCredential, body), False),
    _REMOVE_SCRAM_CREDENTIAL: lambda body: (_scram_credential(_RemoveScramCredential, body), True),
    _DELEGATION_TOKEN: lambda body: ((_DELEGATION_TOKEN, _read(_DelegationToken, body).token_id), False),
    _REMOVE_DELEGATION_TOKEN: lambda body: (
        (_DELEGATION_TOKEN, _read(_RemoveDelegationToken, body).token_id),
        True,
    ),
    _ACL: lambda body: (_acl(body), False),
    _REMOVE_ACL: lambda body: (_acl(body), True),
    _ZK_MIGRATION: lambda body: (_ZK_MIGRATION, False),
}
