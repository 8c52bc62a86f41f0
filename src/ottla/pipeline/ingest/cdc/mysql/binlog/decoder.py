"""Decodes the events of a binlog into records, and keeps the state between them. It has no connection and no clock.

A transaction begins with its GTID. It ends with a commit or, if its GTID says that it is standalone, with its one
statement. A TABLE_MAP event comes before the rows of a table.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import event as events
from pymysqlreplication import row_event

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.envelope import Change, Order, Record
from ottla.pipeline.ingest.cdc.mysql.binlog.columns import column_of, version_in
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import (
    GTID_EVENTS,
    TransactionStart,
    transaction_start,
)
from ottla.pipeline.ingest.cdc.mysql.binlog.rows import RowDecoder
from ottla.pipeline.ingest.cdc.mysql.binlog.statements import (
    CHANGE,
    TRUNCATE,
    Statement,
    opens_transaction,
    parse_statement,
)
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory, TableVersion
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.mysql.source_info import BinlogSourceInfo

_COMMITS = ("COMMIT", "ROLLBACK")
EVENTS = (
    *GTID_EVENTS,
    events.QueryEvent,
    events.XidEvent,
    events.XAPrepareEvent,
    events.HeartbeatLogEvent,
    row_event.TableMapEvent,
    row_event.WriteRowsEvent,
    row_event.UpdateRowsEvent,
    row_event.PartialUpdateRowsEvent,
    row_event.DeleteRowsEvent,
)
# Types of the events that MariaDB compresses with log_bin_compress, which we do not read: 165 to 171.
_COMPRESSED = range(165, 172)


@dataclass(frozen=True)
class _MappedTable:
    """A captured table as its last TABLE_MAP event describes it: what its rows need."""

    db: str
    name: str
    topic: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    decoder: RowDecoder


class BinlogDecoder:
    """`decode` gives the records of an event. `position` includes the transactions that are complete.

    Events of transactions that `position` includes, or that `end` does not, give no records.
    """

    def __init__(
        self, capture: MySqlCapture, history: SchemaHistory, position: BinlogPosition, end: BinlogPosition
    ) -> None:
        self.capture = capture
        self.history = history
        self.position = position
        self.end = end
        self.gtid: Any = None
        self.is_standalone = False
        self.order = Order("")
        # Records of the current transaction: those decoded since its GTID, and those given to the caller. After a
        # lost connection the transaction comes again, and fewer are decoded than were given.
        self.decoded = 0
        self.given = 0
        self.tables: dict[int, _MappedTable | None] = {}
        self.versions: dict[tuple[str, str], TableVersion] = {}

    @property
    def is_complete(self) -> bool:
        return self.position.reaches(self.end)

    def reconnected(self) -> None:
        """An incomplete transaction comes again from its beginning, with new TABLE_MAP events."""
        self.gtid = None
        self.tables = {}

    def decode(self, event: Any, file: str) -> Iterator[Record]:
        start = transaction_start(event, self.capture.address)
        if start is not None:
            self._begin(start)
        elif self.gtid is not None:
            for record in self._decode_in_transaction(event, file):
                self.decoded += 1
                if self.decoded > self.given:
                    self.given = self.decoded
                    yield record

    def _begin(self, start: TransactionStart) -> None:
        gtid = start.gtid
        is_wanted = self.end.includes(gtid) and not self.position.includes(gtid)
        self.gtid = gtid if is_wanted else None
        self.is_standalone = start.is_standalone
        self.order = Order(str(gtid))
        self.decoded = 0

    def _commit(self) -> None:
        if self.gtid is not None:
            self.position = self.position.after(self.gtid)
            self.gtid = None
            self.given = 0

    def _decode_in_transaction(self, event: Any, file: str) -> Iterator[Record]:
        if isinstance(event, row_event.TableMapEvent):
            self.tables[event.table_id] = self._map_table(event)
        elif isinstance(event, row_event.RowsEvent):
            yield from self._decode_rows(event, file)
        elif isinstance(event, events.QueryEvent):
            yield from self._decode_statement(event, file)
        elif isinstance(event, events.XidEvent | events.XAPrepareEvent):
            self._commit()
        elif isinstance(event, events.NotImplementedEvent) and event.event_type in _COMPRESSED:
            raise PipelineError(
                f"The binlog of {self.capture.address} is compressed, which is not supported.",
                "Set log_bin_compress = OFF on the server, and remove the source's checkpoint folder to start over "
                "with a new snapshot.",
            )

    def _decode_rows(self, event: Any, file: str) -> Iterator[Record]:
        table = self.tables.get(event.table_id)
        if table is None:
            return
        self._check_image(event, table)
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        rows = (dict(zip(table.columns, row, strict=True)) for row in table.decoder.decode(data))
        source = self._source_info(event, file, table.db, table.name)
        changes = (Change(table.topic, table.key, source, number, self.order) for number in itertools.count())
        if isinstance(event, row_event.UpdateRowsEvent):
            for change, before, after in zip(changes, rows, rows, strict=False):
                yield from change.updated(before, after)
        elif isinstance(event, row_event.WriteRowsEvent):
            for change, row in zip(changes, rows, strict=False):
                yield from change.inserted(row)
        else:
            for change, row in zip(changes, rows, strict=False):
                yield from change.deleted(row)

    def _source_info(self, event: Any, file: str, db: str, table: str) -> BinlogSourceInfo:
        return BinlogSourceInfo(
            connector=self.end.connector,
            name=self.capture.server,
            ts_ms=event.timestamp * 1000,
            db=db,
            table=table,
            server_id=event.packet.server_id,
            gtid=str(self.gtid),
            file=file,
            pos=event.packet.log_pos - event.packet.event_size,
        )

    def _check_image(self, event: Any, table: _MappedTable) -> None:
        """A column that is missing in the row image would look like NULL, a part of a JSON value like all of it."""
        if isinstance(event, row_event.PartialUpdateRowsEvent):
            raise PipelineError(
                f"Transaction {self.gtid} has rows of {table.db}.{table.name} with only parts of JSON values.",
                "Set binlog_row_value_options = '' on the server, for sessions too, and remove the source's checkpoint "
                "folder to start over with a new snapshot.",
            )
        all_columns = (1 << len(table.columns)) - 1
        for bitmap in (event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", None)):
            if bitmap is not None and int.from_bytes(bitmap, "little") & all_columns != all_columns:
                raise PipelineError(
                    f"Transaction {self.gtid} has rows of {table.db}.{table.name} without all of their columns.",
                    "Set binlog_row_image = FULL on the server, for sessions too, and remove the source's checkpoint "
                    "folder to start over with a new snapshot.",
                )

    def _decode_statement(self, event: Any, file: str) -> Iterator[Record]:
        if event.query in _COMMITS:
            self._commit()
            return
        if opens_transaction(event.query):
            self.is_standalone = False
            return
        statement = parse_statement(event.query, event.schema.decode("utf-8", "replace"))
        if statement is not None:
            yield from self._apply_statement(statement, event, file)
        if self.is_standalone:
            self._commit()

    def _apply_statement(self, statement: Statement, event: Any, file: str) -> Iterator[Record]:
        for db, table in statement.tables:
            if not self.capture.captures(db, table):
                continue
            if statement.effect == TRUNCATE:
                source = self._source_info(event, file, db, table)
                yield Change(self.capture.topic_of(db, table), (), source, order=self.order).truncated()
            elif statement.effect == CHANGE:
                raise PipelineError(
                    f"Transaction {self.gtid} changed {db}.{table} with a statement that is in the binlog as text, "
                    "not as rows.",
                    "Set binlog_format = ROW on the server, for sessions too, and remove the source's checkpoint "
                    "folder to start over with a new snapshot.",
                )
            else:
                self._redefine_table(db, table, event.query)

    def _redefine_table(self, db: str, table: str, ddl: str) -> None:
        assert self.gtid is not None
        version = TableVersion(db, table, str(self.position.after(self.gtid)), None, ddl=ddl)
        self.history.record(version)
        self.versions[db, table] = version

    def _map_table(self, event: Any) -> _MappedTable | None:
        """None for a table that is not captured."""
        db, table = event.schema, event.table
        if not self.capture.captures(db, table):
            return None
        version = self._version(db, table, event)
        assert version.columns is not None
        columns = [
            column_of(column, schema) for column, schema in zip(event.columns, version.columns, strict=True)
        ]
        names = tuple(column.name for column in columns)
        decoder = RowDecoder(f"{db}.{table}", columns)
        return _MappedTable(db, table, self.capture.topic_of(db, table), names, version.key, decoder)

    def _version(self, db: str, table: str, event: Any) -> TableVersion:
        """From the event if it names the columns, otherwise from the schema history."""
        known = self.versions.get((db, table)) or self.history.at(db, table, self.position)
        if event.columns and event.columns[0].name:
            version = version_in(event, str(self.position))
            if known is None or known.columns is None or not known.has_same_columns(version):
                self.history.record(version)
            self.versions[db, table] = version
            return version
        if known is None or known.columns is None or len(known.columns) != len(event.columns):
            raise PipelineError(
                f"The columns of {db}.{table} changed, and the binlog does not name them (transaction {self.gtid}).",
                "Set binlog_row_metadata = FULL on the server, and remove the source's checkpoint folder to start over "
                "with a new snapshot.",
            )
        self.versions[db, table] = known
        return known
