"""The consistent snapshot: all rows of the captured tables at one position of the binlog.

The records go into files (`snapshot_files`), the manifest last: a snapshot without a manifest was interrupted, and the
next start takes another one. MariaDB reports the position of a consistent snapshot, so no lock is needed. MySQL does
not: there the captured tables are locked while the snapshot is opened and the position is read.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from ottla.pipeline.ingest.cdc.envelope import Change, Row
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory
from ottla.pipeline.ingest.cdc.mysql.server import connect, is_mariadb, position_of, query, quote
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.mysql.snapshot_query import converter, select_statement
from ottla.pipeline.ingest.cdc.mysql.source_info import BinlogSourceInfo
from ottla.pipeline.ingest.cdc.mysql.tables import CapturedTable, captured_names, captured_tables
from ottla.pipeline.ingest.cdc.snapshot_files import SnapshotManifest, snapshot_records, write_chunks

_ATTEMPTS = 5
# While we wait for the lock, writers that come later wait for us.
LOCK_WAIT_S = 10
_TABLE_CHANGED = frozenset({ER.TABLE_DEF_CHANGED, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
_OPEN_SNAPSHOT = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET time_zone = '+00:00', net_write_timeout = 600",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
)


@dataclass(frozen=True)
class MySqlManifest(SnapshotManifest):
    """`position` is the snapshot's position in the binlog, `chunks` the number of its files.

    MySQL reports the position as a set of GTIDs only: `file` and `pos` are empty then.
    """

    position: str
    file: str
    pos: int
    ts_ms: int
    server_id: int
    chunks: int = 0
    connector: str = "mariadb"


def take_snapshot(capture: MySqlCapture) -> MySqlManifest:
    """With `snapshot = "never"` it has no rows, only the position where the changes begin."""
    for attempt in range(1, _ATTEMPTS + 1):
        folder = capture.snapshot_folder
        shutil.rmtree(folder, ignore_errors=True)
        with connect(capture, cursorclass=SSCursor) as connection:
            try:
                manifest = _write_snapshot(connection, capture)
            except pymysql.MySQLError as error:
                if error.args[0] in _TABLE_CHANGED and attempt < _ATTEMPTS:
                    continue
                raise
        manifest.save(folder)
        return manifest
    raise AssertionError("the last attempt returns or raises")


def _write_snapshot(connection: Any, capture: MySqlCapture) -> MySqlManifest:
    manifest = _open_on_mariadb(connection) if is_mariadb(connection) else _open_on_mysql(connection, capture)
    tables = captured_tables(connection, capture)
    history = SchemaHistory(capture.schema_folder)
    for table in tables:
        history.record(table.version(manifest.position))
    if capture.snapshot == "never":
        return manifest
    records = snapshot_records(_all_rows(connection, capture, tables, manifest))
    return replace(manifest, chunks=write_chunks(capture.snapshot_folder, records))


def _open_on_mariadb(connection: Any) -> MySqlManifest:
    for statement in _OPEN_SNAPSHOT:
        query(connection, statement)
    status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, pos = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
    position, server_id = query(connection, "SELECT BINLOG_GTID_POS(%s, %s), @@server_id", file, pos)[0]
    return MySqlManifest(position or "", file, pos, time.time_ns() // 1_000_000, int(server_id))


def _open_on_mysql(connection: Any, capture: MySqlCapture) -> MySqlManifest:
    """Another connection locks the captured tables while the snapshot is opened and the position is read.

    A transaction that wrote to them before the lock is committed: it is in the snapshot and in the position. One that
    writes to them later is in neither. Transactions on other tables do not matter. If a captured table was created
    before the lock and is not locked, the snapshot shows it, and we try again.
    """
    names: list[tuple[str, str]] = []
    while True:
        with connect(capture) as locking:
            if capture.snapshot == "initial":
                _lock_tables(locking, names := captured_names(locking, capture))
            for statement in _OPEN_SNAPSHOT:
                query(connection, statement)
            position = position_of(connection, capture)
            server_id = query(connection, "SELECT @@server_id")[0][0]
            if capture.snapshot == "never" or captured_names(connection, capture) == names:
                now_ms = time.time_ns() // 1_000_000
                return MySqlManifest(
                    str(position), "", 0, now_ms, int(server_id), connector=position.connector
                )


def _lock_tables(connection: Any, tables: Iterable[tuple[str, str]]) -> None:
    """The locks last until the connection is closed."""
    locks = [f"{quote(db)}.{quote(table)} READ" for db, table in tables]
    if locks:
        query(connection, f"SET SESSION lock_wait_timeout = {LOCK_WAIT_S}")
        query(connection, f"LOCK TABLES {', '.join(locks)}")


def _all_rows(
    connection: Any, capture: MySqlCapture, tables: Iterable[CapturedTable], at: MySqlManifest
) -> Iterator[tuple[Change, Row]]:
    for table in tables:
        change = Change(capture.topic_of(table.db, table.name), table.key, _source_info(table, capture, at))
        for row in _table_rows(connection, table):
            yield change, row


def _source_info(table: CapturedTable, capture: MySqlCapture, at: MySqlManifest) -> BinlogSourceInfo:
    return BinlogSourceInfo(
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


def _table_rows(connection: Any, table: CapturedTable) -> Iterator[Row]:
    names = [column.name for column in table.columns]
    converters = [converter(column) for column in table.columns]
    with connection.cursor() as cursor:
        cursor.execute(select_statement(table))
        for row in cursor:
            yield {
                name: None if value is None else convert(value)
                for name, value, convert in zip(names, row, converters, strict=True)
            }
