"""Debezium's envelope: the change of a row as the records of a topic.

`ts_ms` is the time of the change, not the time of reading it, so a batch that is read again gives the same bytes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

_CREATE, _UPDATE, _DELETE, _READ, _TRUNCATE = "c", "u", "d", "r", "t"
_NULL = "null"

Row = Mapping[str, Any]

# Made once, because json.dumps makes a new encoder for every call with these settings.
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None


class SourceInfo(Protocol):
    """The envelope's `source`, where a change comes from. Its fields differ between databases."""

    @property
    def ts_ms(self) -> int: ...

    @property
    def table_id(self) -> str:
        """The table's full name, by which the order within a transaction counts."""
        ...

    def to_json(self, row: int) -> str:
        """`row` is the number of the row in its event."""
        ...

    def marked_last(self) -> Self:
        """The source of a snapshot's last row."""
        ...


class Order:
    """Numbers the changes of one transaction, over all tables and in each."""

    def __init__(self, transaction: str) -> None:
        self.transaction = encode_json(transaction)
        self.total = 0
        self.by_table: dict[str, int] = {}

    def next(self, table: str) -> str:
        self.total += 1
        of_table = self.by_table[table] = self.by_table.get(table, 0) + 1
        return f'{{"id":{self.transaction},"total_order":{self.total},"data_collection_order":{of_table}}}'


class Change(NamedTuple):
    """What the records of one change share. `key` names the primary key's columns, `row` counts within an event."""

    topic: str
    key: Sequence[str]
    source: SourceInfo
    row: int = 0
    order: Order | None = None

    def _key_of(self, row: Row) -> bytes | None:
        """None for a table without a primary key."""
        return encode_json({name: row[name] for name in self.key}).encode() if self.key else None

    def _value(self, op: str, before: Row | None, after: Row | None) -> bytes:
        source = self.source
        transaction = _NULL if self.order is None else self.order.next(source.table_id)
        return (
            f'{{"before":{_NULL if before is None else encode_json(before)},'
            f'"after":{_NULL if after is None else encode_json(after)},'
            f'"source":{source.to_json(self.row)},'
            f'"op":"{op}","ts_ms":{source.ts_ms},"transaction":{transaction}}}'
        ).encode()

    def read(self, row: Row) -> Record:
        return Record(self.topic, self._key_of(row), self._value(_READ, None, row))

    def inserted(self, row: Row) -> Iterator[Record]:
        yield Record(self.topic, self._key_of(row), self._value(_CREATE, None, row))

    def deleted(self, row: Row) -> Iterator[Record]:
        """A tombstone follows, so that a compacted topic drops the key. Without a key there is nothing to drop."""
        key = self._key_of(row)
        yield Record(self.topic, key, self._value(_DELETE, row, None))
        if key is not None:
            yield Record(self.topic, key, None)

    def updated(self, before: Row | None, after: Row) -> Iterator[Record]:
        """An update of the key is a delete of the old row and an insert of the new one.

        `before` is None if it is unknown: then the key did not change.
        """
        key = self._key_of(after)
        if before is not None and key != self._key_of(before):
            yield from self.deleted(before)
            yield from self.inserted(after)
        else:
            yield Record(self.topic, key, self._value(_UPDATE, before, after))

    def truncated(self) -> Record:
        return Record(self.topic, None, self._value(_TRUNCATE, None, None))
