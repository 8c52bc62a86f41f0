"""The consistent snapshot: all rows of the captured tables as of one position of the binlog.

A snapshot cannot be taken twice, so its records are put into files beside the checkpoint, and batches read the files.
The manifest is written last: a snapshot without one was cut off, and another is taken. MariaDB opens a consistent
snapshot together with its place in the binlog, without a lock. MySQL does not tell the two together: there captured
tables are locked for the moment in which both are taken.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from ottla.pipeline.ingest.cdc.envelope import Change, Record
from ottla.pipeline.ingest.cdc.mysql import snapshot_query
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory
from ottla.pipeline.ingest.cdc.mysql.server import connected, is_mariadb, position_of, query
from ottla.pipeline.ingest.cdc.mysql.settings import Capture
from ottla.pipeline.ingest.cdc.mysql.source_info import BinlogOrigin
from ottla.pipeline.ingest.cdc.mysql.tables import CapturedTable, captured_names, captured_tables
from ottla.pipeline.ingest.cdc.snapshot_files import marking_last, write_chunks
from ottla.pipeline.ingest.cdc.state_files import SnapshotManifest

ATTEMPTS = 5
# Who waits for the lock holds up those who want to write after it.
LOCK_WAIT_S = 10
TABLE_CHANGED = frozenset({ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
OPEN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET time_zone = '+00:00', net_write_timeout = 600",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


@dataclass(frozen=True)
class Manifest(SnapshotManifest):
    """`position` is the snapshot's place in the binlog, `chunks` the number of its files.

    MySQL tells the place as a set of transactions alone, without `file` and `pos`.
    """

    position: str
    file: str
    pos: int
    ts_ms: int
    server_id: int
    chunks: int = 0
    connector: str = "mariadb"


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
    manifest = opened(connection) if is_mariadb(connection) else opened_mysql(connection, capture)
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


def opened_mysql(connection: Any, capture: Capture) -> Manifest:
    """A lock on the captured tables, held by another connection, makes sure of both sides.

    Who has written to them is committed, in the snapshot and in the set of transactions; who will is in neither. What
    happens to other tables meanwhile matters to nobody. A table that came before the lock is seen in the snapshot.
    """
    names: list[tuple[str, str]] = []
    while True:
        with connected(capture) as other:
            if capture.snapshot == "initial":
                lock(other, names := captured_names(other, capture))
            for statement in OPEN:
                query(connection, statement)
            position = position_of(connection, capture)
            server_id = query(connection, "SELECT @@server_id")[0][0]
            if capture.snapshot == "never" or captured_names(connection, capture) == names:
                now_ms = time.time_ns() // 1_000_000
                return Manifest(str(position), "", 0, now_ms, int(server_id), connector=position.connector)


def lock(connection: Any, tables: Iterable[tuple[str, str]]) -> None:
    """Until the connection is closed."""
    locks = [f"{snapshot_query.quoted(db)}.{snapshot_query.quoted(table)} READ" for db, table in tables]
    if locks:
        query(connection, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
        query(connection, f"LOCK TABLES {', '.join(locks)}")


def snapshot_records(
    connection: Any, capture: Capture, tables: Iterable[CapturedTable], at: Manifest
) -> Iterator[Record]:
    """The last row is marked: whoever reads the topic knows that the snapshot is whole."""
    for (table, source, row), is_last in marking_last(all_rows(connection, capture, tables, at)):
        marked = replace(source, snapshot="last") if is_last else source
        yield Change(capture.topic_of(table.db, table.name), table.key, marked).read(row)


def all_rows(
    connection: Any, capture: Capture, tables: Iterable[CapturedTable], at: Manifest
) -> Iterator[tuple[CapturedTable, BinlogOrigin, dict[str, Any]]]:
    for table in tables:
        source = source_of(table, capture, at)
        for row in table_rows(connection, table):
            yield table, source, row


def source_of(table: CapturedTable, capture: Capture, at: Manifest) -> BinlogOrigin:
    return BinlogOrigin(
        connector=at.connector,
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
    readers = [snapshot_query.reader(column) for column in table.columns]
    with connection.cursor() as cursor:
        cursor.execute(snapshot_query.statement(table))
        for row in cursor:
            yield {
                name: None if value is None else read(value)
                for name, value, read in zip(names, row, readers, strict=True)
            }
