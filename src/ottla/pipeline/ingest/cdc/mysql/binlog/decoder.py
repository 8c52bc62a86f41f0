"""From the events of a binlog to records: what is remembered between them, without connection and clock.

A transaction begins with its GTID and ends with a commit, or, where its GTID says that it stands alone, with its one
statement. Tables are announced before their rows.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import event as events
from pymysqlreplication import row_event

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.envelope import Change, Order, Record
from ottla.pipeline.ingest.cdc.mysql.binlog.columns import physical, shown_version
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import BEGINNINGS, Begun, begun
from ottla.pipeline.ingest.cdc.mysql.binlog.rows import RowDecoder
from ottla.pipeline.ingest.cdc.mysql.binlog.statements import meaning, opens_transaction
from ottla.pipeline.ingest.cdc.mysql.positions import Place
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory, Version
from ottla.pipeline.ingest.cdc.mysql.settings import Capture
from ottla.pipeline.ingest.cdc.mysql.source_info import BinlogOrigin

COMMITS = ("COMMIT", "ROLLBACK")
EVENTS = (
    *BEGINNINGS,
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
# Rows and statements that log_bin_compress has made unreadable for us: 165 to 171.
COMPRESSED = range(165, 172)


@dataclass(frozen=True)
class Announced:
    """A table as the rows that follow need it."""

    db: str
    name: str
    topic: str
    names: tuple[str, ...]
    key: tuple[str, ...]
    decoder: RowDecoder


class Transcript:
    """`take` gives the records of an event. `position` holds the transactions that are complete.

    Events of transactions that `position` includes, or that are beyond `end`, give nothing.
    """

    def __init__(self, capture: Capture, history: SchemaHistory, position: Place, end: Place) -> None:
        self.capture = capture
        self.history = history
        self.position = position
        self.end = end
        self.gtid: Any = None
        self.standalone = False
        self.order = Order("")
        # Records of the transaction that is under way: those seen since its GTID, and those given to the caller,
        # which are more while it comes again after a lost connection.
        self.seen = 0
        self.given = 0
        self.tables: dict[int, Announced | None] = {}
        self.versions: dict[tuple[str, str], Version] = {}

    @property
    def is_complete(self) -> bool:
        return self.position.reaches(self.end)

    def reconnected(self) -> None:
        """An unfinished transaction comes again from its beginning, and tables are announced anew."""
        self.gtid = None
        self.tables = {}

    def take(self, event: Any, file: str) -> Iterator[Record]:
        beginning = begun(event, self.capture.address)
        if beginning is not None:
            self.begin(beginning)
        elif self.gtid is not None:
            for record in self.within(event, file):
                self.seen += 1
                if self.seen > self.given:
                    self.given = self.seen
                    yield record

    def begin(self, beginning: Begun) -> None:
        gtid = beginning.gtid
        is_wanted = self.end.includes(gtid) and not self.position.includes(gtid)
        self.gtid = gtid if is_wanted else None
        self.standalone = beginning.standalone
        self.order = Order(str(gtid))
        self.seen = 0

    def commit(self) -> None:
        if self.gtid is not None:
            self.position = self.position.after(self.gtid)
            self.gtid = None
            self.given = 0

    def within(self, event: Any, file: str) -> Iterator[Record]:
        if isinstance(event, row_event.TableMapEvent):
            self.tables[event.table_id] = self.announced(event)
        elif isinstance(event, row_event.RowsEvent):
            yield from self.rows(event, file)
        elif isinstance(event, events.QueryEvent):
            yield from self.statement(event, file)
        elif isinstance(event, events.XidEvent | events.XAPrepareEvent):
            self.commit()
        elif isinstance(event, events.NotImplementedEvent) and event.event_type in COMPRESSED:
            raise PipelineError(
                f"The binlog of {self.capture.address} is compressed and cannot be read.",
                "Set log_bin_compress = OFF on the server, and remove the source's checkpoint folder to begin with a "
                "new snapshot.",
            )

    def rows(self, event: Any, file: str) -> Iterator[Record]:
        table = self.tables.get(event.table_id)
        if table is None:
            return
        self.check_image(event, table)
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        rows = (dict(zip(table.names, row, strict=True)) for row in table.decoder.all(data))
        source = self.source(event, file, table.db, table.name)
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

    def source(self, event: Any, file: str, db: str, table: str) -> BinlogOrigin:
        return BinlogOrigin(
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

    def check_image(self, event: Any, table: Announced) -> None:
        """A column that is not in the image would look like NULL, a part of a JSON value like the whole."""
        if isinstance(event, row_event.PartialUpdateRowsEvent):
            raise PipelineError(
                f"Transaction {self.gtid} holds rows of {table.db}.{table.name} with parts of JSON values only.",
                "Set binlog_row_value_options = '' on the server, for sessions too, and remove the source's checkpoint "
                "folder to begin with a new snapshot.",
            )
        width = len(table.names)
        for bitmap in (event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", None)):
            if (
                bitmap is not None
                and int.from_bytes(bitmap, "little") & ((1 << width) - 1) != (1 << width) - 1
            ):
                raise PipelineError(
                    f"Transaction {self.gtid} holds rows of {table.db}.{table.name} without all of their columns.",
                    "Set binlog_row_image = FULL on the server, for sessions too, and remove the source's checkpoint "
                    "folder to begin with a new snapshot.",
                )

    def statement(self, event: Any, file: str) -> Iterator[Record]:
        if event.query in COMMITS:
            self.commit()
            return
        if opens_transaction(event.query):
            self.standalone = False
            return
        database = event.schema.decode("utf-8", "replace")
        found = meaning(event.query, database)
        tables = [names for names in found.tables if self.capture.captures(*names)] if found else []
        for db, table in tables:
            assert found is not None
            if found.kind == "truncate":
                source = self.source(event, file, db, table)
                yield Change(self.capture.topic_of(db, table), (), source, order=self.order).truncated()
            elif found.kind == "change":
                raise PipelineError(
                    f"Transaction {self.gtid} changed {db}.{table} with a statement that is in the binlog as text, "
                    "not as rows.",
                    "Set binlog_format = ROW on the server, for sessions too, and remove the source's checkpoint "
                    "folder to begin with a new snapshot.",
                )
            else:
                self.redefined(db, table, event.query)
        if self.standalone:
            self.commit()

    def redefined(self, db: str, table: str, ddl: str) -> None:
        assert self.gtid is not None
        version = Version(db, table, str(self.position.after(self.gtid)), None, ddl=ddl)
        self.history.record(version)
        self.versions[db, table] = version

    def announced(self, event: Any) -> Announced | None:
        db, table = event.schema, event.table
        if not self.capture.captures(db, table):
            return None
        version = self.version(db, table, event)
        assert version.columns is not None
        columns = [
            physical(column, described)
            for column, described in zip(event.columns, version.columns, strict=True)
        ]
        names = tuple(column.name for column in columns)
        decoder = RowDecoder(f"{db}.{table}", columns)
        return Announced(db, table, self.capture.topic_of(db, table), names, version.key, decoder)

    def version(self, db: str, table: str, event: Any) -> Version:
        """As the event shows it, where it does; else as the history knows it."""
        known = self.versions.get((db, table)) or self.history.at(db, table, self.position)
        if event.columns and event.columns[0].name:
            shown = shown_version(event, str(self.position))
            if known is None or known.columns is None or not known.same_table(shown):
                self.history.record(shown)
            self.versions[db, table] = shown
            return shown
        if known is None or known.columns is None or len(known.columns) != len(event.columns):
            raise PipelineError(
                f"The columns of {db}.{table} changed, and the binlog does not name them (transaction {self.gtid}).",
                "Set binlog_row_metadata = FULL on the server, and remove the source's checkpoint folder to begin "
                "with a new snapshot.",
            )
        self.versions[db, table] = known
        return known
