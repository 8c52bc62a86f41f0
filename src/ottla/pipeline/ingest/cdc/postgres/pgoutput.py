"""Parses the messages of PostgreSQL's logical decoding plugin `pgoutput`, version 1."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# Microseconds from 1970 to 2000, PostgreSQL's epoch.
_EPOCH_2000_US = 946_684_800_000_000
_NULL, _UNCHANGED = b"n", b"u"


class Unchanged:
    """Stands for a large value that an update left alone, which the server does not send."""


UNCHANGED = Unchanged()
Field = str | None | Unchanged


class Begin(NamedTuple):
    """`lsn` is that of the commit."""

    lsn: int
    ts_ms: int
    transaction: int


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """`identity`, the replica identity, is d (the primary key), i (an index), f (all columns) or n (none)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    relation: int
    new: list[Field]


class Update(NamedTuple):
    """`old` is set if the key changed, or if all columns are the replica identity."""

    relation: int
    old: list[Field] | None
    new: list[Field]


class Delete(NamedTuple):
    relation: int
    old: list[Field]


class Truncate(NamedTuple):
    relations: tuple[int, ...]


Message = Begin | Relation | Insert | Update | Delete | Truncate


class _Cursor:
    """Reads a message from front to back, after the byte of its type."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 1

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return int(value)

    def letter(self) -> bytes:
        self.at += 1
        return self.data[self.at - 1 : self.at]

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found, self.at = self.data[self.at : end].decode(), end + 1
        return found

    def fields(self) -> list[Field]:
        return [self.field() for _ in range(self.number(">h"))]

    def field(self) -> Field:
        kind = self.letter()
        if kind == _NULL:
            return None
        if kind == _UNCHANGED:
            return UNCHANGED
        length = self.number(">i")
        self.at += length
        return self.data[self.at - length : self.at].decode()


def parse(data: bytes) -> Message | None:
    """None for messages that records do not need: commits, types, origins, and those that applications write."""
    read = _PARSERS.get(data[:1])
    return read(_Cursor(data)) if read is not None else None


def _parse_begin(cursor: _Cursor) -> Begin:
    lsn, since_2000, transaction = cursor.number(">Q"), cursor.number(">q"), cursor.number(">I")
    return Begin(lsn, (since_2000 + _EPOCH_2000_US) // 1000, transaction)


def _parse_relation(cursor: _Cursor) -> Relation:
    oid, schema, name = cursor.number(">I"), cursor.text(), cursor.text()
    identity = cursor.letter().decode()
    columns = []
    for _ in range(cursor.number(">h")):
        is_key = bool(cursor.number(">b") & 1)
        column, type_oid = cursor.text(), cursor.number(">I")
        cursor.number(">i")
        columns.append(RelationColumn(column, type_oid, is_key))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _parse_insert(cursor: _Cursor) -> Insert:
    oid = cursor.number(">I")
    cursor.letter()
    return Insert(oid, cursor.fields())


def _parse_update(cursor: _Cursor) -> Update:
    oid, old = cursor.number(">I"), None
    if cursor.letter() in (b"K", b"O"):
        old = cursor.fields()
        cursor.letter()
    return Update(oid, old, cursor.fields())


def _parse_delete(cursor: _Cursor) -> Delete:
    oid = cursor.number(">I")
    cursor.letter()
    return Delete(oid, cursor.fields())


def _parse_truncate(cursor: _Cursor) -> Truncate:
    count = cursor.number(">i")
    cursor.number(">b")
    return Truncate(tuple(cursor.number(">I") for _ in range(count)))


_PARSERS: dict[bytes, Callable[[_Cursor], Message]] = {
    b"B": _parse_begin,
    b"R": _parse_relation,
    b"I": _parse_insert,
    b"U": _parse_update,
    b"D": _parse_delete,
    b"T": _parse_truncate,
}
