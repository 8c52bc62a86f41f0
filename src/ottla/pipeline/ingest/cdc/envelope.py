"""Debezium's envelope: a change of a row as the records of a topic.

`ts_ms` is the time of the change, not of its reading: a batch that is read again gives the same bytes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"

Row = Mapping[str, Any]


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None


# Kept, because json.dumps makes a new one for every call with these settings.
ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

NULL = "null"


class Source(Protocol):
    """Where a change comes from: the part of the envelope that differs between databases."""

    @property
    def ts_ms(self) -> int: ...

    @property
    def table_id(self) -> str:
        """The table's whole name, as the order in a transaction counts it."""
        ...

    def text(self, row: int) -> str:
        """As JSON, for the row of this number in its event."""
        ...


class Order:
    """Numbers the changes of one transaction, over all tables and in each."""

    def __init__(self, transaction: str) -> None:
        self.transaction = ENCODE(transaction)
        self.total = 0
        self.by_table: dict[str, int] = {}

    def next(self, table: str) -> str:
        self.total += 1
        here = self.by_table[table] = self.by_table.get(table, 0) + 1
        return f'{{"id":{self.transaction},"total_order":{self.total},"data_collection_order":{here}}}'


class Change(NamedTuple):
    """What the records of one row have in common. `key` names the primary key's columns, `row` counts in an event."""

    topic: str
    key: Sequence[str]
    source: Source
    row: int = 0
    order: Order | None = None

    def key_of(self, row: Row) -> bytes | None:
        """None for a table without a primary key."""
        return ENCODE({name: row[name] for name in self.key}).encode() if self.key else None

    def value(self, op: str, before: Row | None, after: Row | None) -> bytes:
        source = self.source
        transaction = NULL if self.order is None else self.order.next(source.table_id)
        return (
            f'{{"before":{NULL if before is None else ENCODE(before)},'
            f'"after":{NULL if after is None else ENCODE(after)},'
            f'"source":{source.text(self.row)},'
            f'"op":"{op}","ts_ms":{source.ts_ms},"transaction":{transaction}}}'
        ).encode()

    def read(self, row: Row) -> Record:
        return Record(self.topic, self.key_of(row), self.value(READ, None, row))

    def inserted(self, row: Row) -> Iterator[Record]:
        yield Record(self.topic, self.key_of(row), self.value(CREATE, None, row))

    def deleted(self, row: Row) -> Iterator[Record]:
        """The tombstone lets a compacted topic forget the key; without a key there is nothing to forget."""
        key = self.key_of(row)
        yield Record(self.topic, key, self.value(DELETE, row, None))
        if key is not None:
            yield Record(self.topic, key, None)

    def updated(self, before: Row, after: Row) -> Iterator[Record]:
        """A row whose key changes is another row: the old one goes, the new one comes."""
        key = self.key_of(after)
        if key != self.key_of(before):
            yield from self.deleted(before)
            yield from self.inserted(after)
        else:
            yield Record(self.topic, key, self.value(UPDATE, before, after))

    def truncated(self) -> Record:
        return Record(self.topic, None, self.value(TRUNCATE, None, None))
