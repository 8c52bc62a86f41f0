"""The changes of a PostgreSQL database between two LSNs, read through its replication slot.

The slot is read without advancing it: it advances only when a batch is committed, so a batch can be read again. A
transaction belongs to the batch in which the LSN of its commit lies: from `start` on and before `end`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.errors import RetriableError
from ottla.pipeline.ingest.cdc.envelope import Change, Order, Record
from ottla.pipeline.ingest.cdc.postgres import pgoutput
from ottla.pipeline.ingest.cdc.postgres.lsn import format_lsn
from ottla.pipeline.ingest.cdc.postgres.pgoutput import Field, Relation
from ottla.pipeline.ingest.cdc.postgres.server import check_slot, connect, query
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source_info import PostgresSourceInfo
from ottla.pipeline.ingest.cdc.postgres.tables import key_columns
from ottla.pipeline.ingest.cdc.postgres.values import SESSION_SETTINGS, Converter, converter
from ottla.pipeline.ingest.cdc.retry import RETRY_PAUSE_S

_PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes("
    "%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)"
)
_FETCH_ROWS = 2_000
_UNAVAILABLE = "__debezium_unavailable_value"


def read_changes(capture: PostgresCapture, start: int, end: int) -> Iterator[Record]:
    """Each record once, even if the connection is lost: reading again gives the same records, and we skip the given."""
    given = 0
    give_up = time.monotonic() + capture.retry_s
    while True:
        try:
            for number, record in enumerate(_peek_changes(capture, start, end)):
                if number >= given:
                    given += 1
                    give_up = time.monotonic() + capture.retry_s
                    yield record
            return
        except RetriableError:
            if time.monotonic() > give_up:
                raise
            time.sleep(RETRY_PAUSE_S)


def _peek_changes(capture: PostgresCapture, start: int, end: int) -> Iterator[Record]:
    with connect(capture) as connection, connect(capture) as catalog:
        catalog.autocommit = True
        check_slot(catalog, capture)
        query(connection, SESSION_SETTINGS)
        decoder = PgoutputDecoder(
            capture, start, end, lambda relation: key_columns(catalog, relation.oid, relation.identity)
        )
        with connection.cursor(name="ottla_changes") as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(_PEEK, (capture.slot, format_lsn(end), f'"{capture.publication}"'))
            for (data,) in cursor:
                message = pgoutput.parse(bytes(data))
                if message is not None:
                    yield from decoder.decode(message)


@dataclass(frozen=True)
class _CapturedRelation:
    """A captured table as its last RELATION message describes it: what its rows need."""

    topic: str
    relation: Relation
    key: tuple[str, ...]
    converters: tuple[Converter, ...]

    def row(self, fields: list[Field], old: list[Field] | None = None) -> dict[str, Any]:
        """`old` is the complete row before the change, if it is known: it has the large values that did not change."""
        row: dict[str, Any] = {}
        for index, (column, convert) in enumerate(zip(self.relation.columns, self.converters, strict=True)):
            field = fields[index]
            if isinstance(field, pgoutput.Unchanged) and old is not None:
                field = old[index]
            if isinstance(field, pgoutput.Unchanged):
                row[column.name] = _UNAVAILABLE
            else:
                row[column.name] = None if field is None else convert(field)
        return row


class PgoutputDecoder:
    """Decodes messages into records, and keeps the state between them: the transaction and the tables."""

    def __init__(
        self,
        capture: PostgresCapture,
        start: int,
        end: int,
        find_key: Callable[[Relation], tuple[str, ...]],
    ) -> None:
        self.capture = capture
        self.start = start
        self.end = end
        self.find_key = find_key
        self.transaction: pgoutput.Begin | None = None
        self.order = Order("")
        self.relations: dict[int, _CapturedRelation | None] = {}

    def decode(self, message: pgoutput.Message) -> Iterator[Record]:
        if isinstance(message, pgoutput.Begin):
            self.transaction = message if self.start <= message.lsn < self.end else None
            self.order = Order(f"{message.transaction}:{message.lsn}")
        elif isinstance(message, Relation):
            self.relations[message.oid] = self._captured_relation(message)
        elif isinstance(message, pgoutput.Truncate):
            for oid in message.relations:
                for change, _ in self._change(oid):
                    yield change.truncated()
        else:
            for change, relation in self._change(message.relation):
                yield from _records_of(message, change, relation)

    def _change(self, oid: int) -> Iterator[tuple[Change, _CapturedRelation]]:
        """Nothing for a transaction of another batch, or a table that is not captured."""
        captured = self.relations.get(oid)
        if self.transaction is not None and captured is not None:
            source = PostgresSourceInfo(
                name=self.capture.server,
                ts_ms=self.transaction.ts_ms,
                db=self.capture.database,
                schema=captured.relation.schema,
                table=captured.relation.name,
                transaction=self.transaction.transaction,
                lsn=self.transaction.lsn,
            )
            yield Change(captured.topic, captured.key, source, order=self.order), captured

    def _captured_relation(self, relation: Relation) -> _CapturedRelation | None:
        if not self.capture.captures(relation.schema, relation.name):
            return None
        # If all columns are the replica identity, the message marks all of them as key columns.
        if relation.identity == "f":
            key = self.find_key(relation)
        else:
            key = tuple(column.name for column in relation.columns if column.is_key)
        topic = self.capture.topic_of(relation.schema, relation.name)
        converters = tuple(converter(column.type_oid) for column in relation.columns)
        return _CapturedRelation(topic, relation, key, converters)


def _records_of(
    message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete, change: Change, captured: _CapturedRelation
) -> Iterator[Record]:
    if isinstance(message, pgoutput.Insert):
        yield from change.inserted(captured.row(message.new))
    elif isinstance(message, pgoutput.Delete):
        yield from change.deleted(captured.row(message.old))
    elif message.old is None:
        yield from change.updated(None, captured.row(message.new))
    else:
        complete = message.old if captured.relation.identity == "f" else None
        yield from change.updated(captured.row(message.old), captured.row(message.new, complete))
