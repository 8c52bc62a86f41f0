"""The changes of a PostgreSQL database between two places of its log, through its replication slot.

They are looked at, not taken: a slot forgets only what was committed, so a batch can be read again. A transaction lies
where its commit lies: it belongs to a batch when that is not before its start and before its end.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.errors import PassingError
from ottla.pipeline.ingest.cdc.envelope import UPDATE, Change, Order, Record
from ottla.pipeline.ingest.cdc.postgres import pgoutput
from ottla.pipeline.ingest.cdc.postgres.lsn import lsn_text
from ottla.pipeline.ingest.cdc.postgres.pgoutput import Field, Relation
from ottla.pipeline.ingest.cdc.postgres.server import check_slot, connected, query
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source_info import PostgresOrigin
from ottla.pipeline.ingest.cdc.postgres.tables import key_columns
from ottla.pipeline.ingest.cdc.postgres.values import SESSION, Reader, reader
from ottla.pipeline.ingest.cdc.retry import RETRY_PAUSE_S

PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes("
    "%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)"
)
FETCH_ROWS = 2_000
UNAVAILABLE = "__debezium_unavailable_value"


def read_changes(capture: PostgresCapture, start: int, end: int) -> Iterator[Record]:
    """Each record once, also when the database goes away in between: it gives the same ones again."""
    given = 0
    until = time.monotonic() + capture.retry_s
    while True:
        try:
            for number, record in enumerate(looked_at(capture, start, end)):
                if number >= given:
                    given += 1
                    until = time.monotonic() + capture.retry_s
                    yield record
            return
        except PassingError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_PAUSE_S)


def looked_at(capture: PostgresCapture, start: int, end: int) -> Iterator[Record]:
    with connected(capture) as connection, connected(capture) as catalog:
        catalog.autocommit = True
        check_slot(catalog, capture)
        query(connection, SESSION)
        transcript = PostgresTranscript(
            capture, start, end, lambda relation: key_columns(catalog, relation.oid, relation.identity)
        )
        with connection.cursor(name="ottla_changes") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(PEEK, (capture.slot, lsn_text(end), f'"{capture.publication}"'))
            for (data,) in cursor:
                message = pgoutput.parse(bytes(data))
                if message is not None:
                    yield from transcript.take(message)


@dataclass(frozen=True)
class Shown:
    """A table as the rows that follow need it; None for one that is not captured."""

    topic: str
    relation: Relation
    key: tuple[str, ...]
    readers: tuple[Reader, ...]

    def row(self, fields: list[Field], old: list[Field] | None = None) -> dict[str, Any]:
        """A large value that was not touched is that of `old`, the whole row before, where it is known."""
        row: dict[str, Any] = {}
        for index, (column, read) in enumerate(zip(self.relation.columns, self.readers, strict=True)):
            field = fields[index]
            if isinstance(field, pgoutput.Unchanged) and old is not None:
                field = old[index]
            if isinstance(field, pgoutput.Unchanged):
                row[column.name] = UNAVAILABLE
            else:
                row[column.name] = None if field is None else read(field)
        return row


class PostgresTranscript:
    """From messages to records: what is remembered between them."""

    def __init__(
        self,
        capture: PostgresCapture,
        start: int,
        end: int,
        primary_key: Callable[[Relation], tuple[str, ...]],
    ) -> None:
        self.capture = capture
        self.start = start
        self.end = end
        self.primary_key = primary_key
        self.transaction: pgoutput.Begin | None = None
        self.order = Order("")
        self.tables: dict[int, Shown | None] = {}

    def take(self, message: pgoutput.Message) -> Iterator[Record]:
        if isinstance(message, pgoutput.Begin):
            self.transaction = message if self.start <= message.lsn < self.end else None
            self.order = Order(f"{message.transaction}:{message.lsn}")
        elif isinstance(message, Relation):
            self.tables[message.oid] = self.shown(message)
        elif isinstance(message, pgoutput.Truncate):
            for oid in message.relations:
                for change, _ in self.change(oid):
                    yield change.truncated()
        elif not isinstance(message, pgoutput.Commit):
            for change, table in self.change(message.relation):
                yield from records_of(message, change, table)

    def change(self, oid: int) -> Iterator[tuple[Change, Shown]]:
        """Nothing for a transaction of another batch, or a table that is not captured."""
        table = self.tables.get(oid)
        if self.transaction is not None and table is not None:
            source = PostgresOrigin(
                name=self.capture.server,
                ts_ms=self.transaction.ts_ms,
                db=self.capture.database,
                schema=table.relation.schema,
                table=table.relation.name,
                transaction=self.transaction.transaction,
                lsn=self.transaction.lsn,
            )
            yield Change(table.topic, table.key, source, order=self.order), table

    def shown(self, relation: Relation) -> Shown | None:
        if not self.capture.captures(relation.schema, relation.name):
            return None
        # Where all columns are the identity, the message does not tell which are the key.
        if relation.identity == "f":
            key = self.primary_key(relation)
        else:
            key = tuple(column.name for column in relation.columns if column.is_key)
        topic = self.capture.topic_of(relation.schema, relation.name)
        return Shown(topic, relation, key, tuple(reader(column.type_oid) for column in relation.columns))


def records_of(
    message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete, change: Change, table: Shown
) -> Iterator[Record]:
    if isinstance(message, pgoutput.Insert):
        yield from change.inserted(table.row(message.new))
    elif isinstance(message, pgoutput.Delete):
        yield from change.deleted(table.row(message.old))
    elif message.old is None:
        after = table.row(message.new)
        yield Record(change.topic, change.key_of(after), change.value(UPDATE, None, after))
    else:
        whole = message.old if table.relation.identity == "f" else None
        yield from change.updated(table.row(message.old), table.row(message.new, whole))
