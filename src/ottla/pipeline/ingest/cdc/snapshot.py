"""The consistent snapshot: all rows of the captured tables as of one position of the binlog.

A snapshot cannot be taken twice, so its records are put into files beside the checkpoint, and batches read the files.
The manifest is written last: a snapshot without one was cut off, and another is taken. MariaDB opens a consistent
snapshot together with its place in the binlog, without a lock.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from ottla.pipeline.ingest.cdc import selecting
from ottla.pipeline.ingest.cdc.durable import SnapshotManifest
from ottla.pipeline.ingest.cdc.envelope import Change, Record
from ottla.pipeline.ingest.cdc.origin import MariaDbOrigin
from ottla.pipeline.ingest.cdc.schema_history import SchemaHistory
from ottla.pipeline.ingest.cdc.server import connected, query
from ottla.pipeline.ingest.cdc.settings import Capture
from ottla.pipeline.ingest.cdc.staging import marking_last, write_chunks
from ottla.pipeline.ingest.cdc.tables import CapturedTable, captured_tables

ATTEMPTS = 5
TABLE_CHANGED = frozenset({ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
OPEN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET time_zone = '+00:00', net_write_timeout = 600",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


@dataclass(frozen=True)
class Manifest(SnapshotManifest):
    """`position` is the snapshot's place in the binlog, `chunks` the number of its files."""

    position: str
    file: str
    pos: int
    ts_ms: int
    server_id: int
    chunks: int = 0


def take(capture: Capture) -> Manifest:
    """With `snapshot = "never"` it is empty, and only remembers where the changes begin."""
    for attempt in range(1, ATTEMPTS + 1):
        folder = capture.snapshot_folder
        shutil.rmtree(folder, ignore_errors=True)
        with connected(capture, cursorclass=SSCursor) as connection:
            try:
                manifest = staged(connection, capture)
            except pymysql.MySQLError as error:
                if error.args[0] in TABLE_CHANGED and attempt < ATTEMPTS:
                    continue
                raise
        manifest.save(folder)
        return manifest
    raise AssertionError("the last attempt returns or raises")


def staged(connection: Any, capture: Capture) -> Manifest:
    manifest = opened(connection)
    tables = captured_tables(connection, capture)
    history = SchemaHistory(capture.schema_folder)
    for table in tables:
        history.record(table.version(manifest.position))
    if capture.snapshot == "never":
        return manifest
    records = snapshot_records(connection, capture, tables, manifest)
    return replace(manifest, chunks=write_chunks(capture.snapshot_folder, records))


def opened(connection: Any) -> Manifest:
    for statement in OPEN:
        query(connection, statement)
    status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, pos = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
    position, server_id = query(connection, "SELECT BINLOG_GTID_POS(%s, %s), @@server_id", file, pos)[0]
    return Manifest(position or "", file, pos, time.time_ns() // 1_000_000, int(server_id))


def snapshot_records(
    connection: Any, capture: Capture, tables: Iterable[CapturedTable], at: Manifest
) -> Iterator[Record]:
    """The last row is marked: whoever reads the topic knows that the snapshot is whole."""
    for (table, source, row), is_last in marking_last(all_rows(connection, capture, tables, at)):
        marked = replace(source, snapshot="last") if is_last else source
        yield Change(capture.topic_of(table.db, table.name), table.key, marked).read(row)


def all_rows(
    connection: Any, capture: Capture, tables: Iterable[CapturedTable], at: Manifest
) -> Iterator[tuple[CapturedTable, MariaDbOrigin, dict[str, Any]]]:
    for table in tables:
        source = source_of(table, capture, at)
        for row in table_rows(connection, table):
            yield table, source, row


def source_of(table: CapturedTable, capture: Capture, at: Manifest) -> MariaDbOrigin:
    return MariaDbOrigin(
        name=capture.server,
        ts_ms=at.ts_ms,
        db=table.db,
        table=table.name,
        server_id=at.server_id,
        gtid=at.position or None,
        file=at.file,
        pos=at.pos,
        snapshot="true",
    )


def table_rows(connection: Any, table: CapturedTable) -> Iterator[dict[str, Any]]:
    names = [column.name for column in table.columns]
    readers = [selecting.reader(column) for column in table.columns]
    with connection.cursor() as cursor:
        cursor.execute(selecting.statement(table))
        for row in cursor:
            yield {
                name: None if value is None else read(value)
                for name, value, read in zip(names, row, readers, strict=True)
            }
