"""PostgreSQL's `pgoutput`, version 1: the messages of logical decoding, from their bytes."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# Microseconds from 1970 to 2000, where PostgreSQL begins to count.
EPOCH_2000_US = 946_684_800_000_000
NULL, UNCHANGED, TEXT = b"n", b"u", b"t"


class Unchanged:
    """A large value that was not touched and is not sent."""


UNTOUCHED = Unchanged()
Field = str | None | Unchanged


class Begin(NamedTuple):
    """`lsn` is the place of the commit."""

    lsn: int
    ts_ms: int
    transaction: int


class Commit(NamedTuple):
    lsn: int


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    """`identity` is d (the primary key), i (an index), f (all columns) or n (none)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    relation: int
    new: list[Field]


class Update(NamedTuple):
    """`old` is there when the key changed, or when all columns are the identity."""

    relation: int
    old: list[Field] | None
    new: list[Field]


class Delete(NamedTuple):
    relation: int
    old: list[Field]


class Truncate(NamedTuple):
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


class Cursor:
    """Reads forward through a message."""

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
        if kind == NULL:
            return None
        if kind == UNCHANGED:
            return UNTOUCHED
        length = self.number(">i")
        self.at += length
        return self.data[self.at - length : self.at].decode()


def parse(data: bytes) -> Message | None:
    """None for messages that say nothing of rows: types, origins, and those of applications."""
    read = PARSERS.get(data[:1])
    return read(Cursor(data)) if read is not None else None


def begin(cursor: Cursor) -> Begin:
    lsn, since_2000, transaction = cursor.number(">Q"), cursor.number(">q"), cursor.number(">I")
    return Begin(lsn, (since_2000 + EPOCH_2000_US) // 1000, transaction)


def commit(cursor: Cursor) -> Commit:
    cursor.number(">b")
    return Commit(cursor.number(">Q"))


def relation(cursor: Cursor) -> Relation:
    oid, schema, name = cursor.number(">I"), cursor.text(), cursor.text()
    identity = cursor.letter().decode()
    columns = []
    for _ in range(cursor.number(">h")):
        is_key = bool(cursor.number(">b") & 1)
        column, type_oid = cursor.text(), cursor.number(">I")
        cursor.number(">i")
        columns.append(RelationColumn(column, type_oid, is_key))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def insert(cursor: Cursor) -> Insert:
    oid = cursor.number(">I")
    cursor.letter()
    return Insert(oid, cursor.fields())


def update(cursor: Cursor) -> Update:
    oid, old = cursor.number(">I"), None
    if cursor.letter() in (b"K", b"O"):
        old = cursor.fields()
        cursor.letter()
    return Update(oid, old, cursor.fields())


def delete(cursor: Cursor) -> Delete:
    oid = cursor.number(">I")
    cursor.letter()
    return Delete(oid, cursor.fields())


def truncate(cursor: Cursor) -> Truncate:
    count = cursor.number(">i")
    cursor.number(">b")
    return Truncate(tuple(cursor.number(">I") for _ in range(count)))


PARSERS: dict[bytes, Callable[[Cursor], Message]] = {
    b"B": begin,
    b"C": commit,
    b"R": relation,
    b"I": insert,
    b"U": update,
    b"D": delete,
    b"T": truncate,
}
