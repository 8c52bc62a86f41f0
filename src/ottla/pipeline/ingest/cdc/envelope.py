"""Debezium's envelope: a change of a row as the records of a topic.

`ts_ms` is the time of the change, not of its reading: a batch that is read again gives the same bytes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"

Row = Mapping[str, Any]


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Source:
    """Where a change comes from. `snapshot` is "true", "last" for a snapshot's last row, or "false"."""

    version: str
    connector: str
    name: str
    ts_ms: int
    db: str
    table: str
    server_id: int
    gtid: str | None
    file: str
    pos: int
    row: int = 0
    snapshot: str = "false"

    def fields(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "connector": self.connector,
            "name": self.name,
            "ts_ms": self.ts_ms,
            "snapshot": self.snapshot,
            "db": self.db,
            "table": self.table,
            "server_id": self.server_id,
            "gtid": self.gtid,
            "file": self.file,
            "pos": self.pos,
            "row": self.row,
            "thread": None,
            "query": None,
        }


class Order:
    """Numbers the changes of one transaction, over all tables and in each."""

    def __init__(self, transaction: str) -> None:
        self.transaction = transaction
        self.total = 0
        self.by_table: dict[str, int] = {}

    def next(self, table: str) -> dict[str, Any]:
        self.total += 1
        self.by_table[table] = self.by_table.get(table, 0) + 1
        return {
            "id": self.transaction,
            "total_order": self.total,
            "data_collection_order": self.by_table[table],
        }


def compact(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def key_of(row: Row, key: Sequence[str]) -> bytes | None:
    """The primary key's columns; none for a table without one."""
    return compact({name: row[name] for name in key}) if key else None


def value_of(op: str, before: Row | None, after: Row | None, source: Source, order: Order | None) -> bytes:
    transaction = order.next(f"{source.db}.{source.table}") if order is not None else None
    return compact(
        {
            "before": before,
            "after": after,
            "source": source.fields(),
            "op": op,
            "ts_ms": source.ts_ms,
            "transaction": transaction,
        }
    )


def inserted(topic: str, row: Row, key: Sequence[str], source: Source, order: Order) -> Iterator[Record]:
    yield Record(topic, key_of(row, key), value_of(CREATE, None, row, source, order))


def deleted(topic: str, row: Row, key: Sequence[str], source: Source, order: Order) -> Iterator[Record]:
    """The tombstone lets a compacted topic forget the key; without a key there is nothing to forget."""
    name = key_of(row, key)
    yield Record(topic, name, value_of(DELETE, row, None, source, order))
    if name is not None:
        yield Record(topic, name, None)


def updated(
    topic: str, before: Row, after: Row, key: Sequence[str], source: Source, order: Order
) -> Iterator[Record]:
    """A row whose key changes is another row: the old one goes, the new one comes."""
    name = key_of(after, key)
    if name != key_of(before, key):
        yield from deleted(topic, before, key, source, order)
        yield from inserted(topic, after, key, source, order)
    else:
        yield Record(topic, name, value_of(UPDATE, before, after, source, order))


def truncated(topic: str, source: Source, order: Order) -> Record:
    return Record(topic, None, value_of(TRUNCATE, None, None, source, order))


def snapshot_read(topic: str, row: Row, key: Sequence[str], source: Source) -> Record:
    return Record(topic, key_of(row, key), value_of(READ, None, row, source, None))
