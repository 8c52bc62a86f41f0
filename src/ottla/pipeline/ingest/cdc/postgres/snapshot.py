"""The consistent snapshot of a PostgreSQL database: its rows at the LSN where its replication slot begins.

Creating the slot exports the snapshot, so no change is missed between the two. The records go into files
(`snapshot_files`), the manifest last: without a manifest the snapshot was interrupted, and the next start drops the
slot and creates it again.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from psycopg2.extensions import (
    ISOLATION_LEVEL_REPEATABLE_READ,
    new_type,
    quote_ident,
    register_type,
    string_types,
)
from psycopg2.extras import LogicalReplicationConnection

from ottla.pipeline.ingest.cdc.envelope import Change, Row
from ottla.pipeline.ingest.cdc.postgres.lsn import parse_lsn
from ottla.pipeline.ingest.cdc.postgres.server import autocommit_session, connect, query
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source_info import PostgresSourceInfo
from ottla.pipeline.ingest.cdc.postgres.tables import (
    PostgresTable,
    captured_tables,
    create_publication,
    quote_table,
)
from ottla.pipeline.ingest.cdc.postgres.values import SESSION_SETTINGS, converter
from ottla.pipeline.ingest.cdc.snapshot_files import SnapshotManifest, snapshot_records, write_chunks

_FETCH_ROWS = 5_000
# Values of every type as the server writes them, as in logical decoding. A cast to text would trim char(n).
_AS_WRITTEN = new_type(tuple(string_types), "AS_WRITTEN", lambda written, _: written)


@dataclass(frozen=True)
class PostgresManifest(SnapshotManifest):
    """`lsn` is where the changes begin, `chunks` the number of the snapshot's files."""

    lsn: int
    ts_ms: int
    chunks: int = 0


def take_snapshot(capture: PostgresCapture) -> PostgresManifest:
    """With `snapshot = "never"` it has no rows, only the LSN where the changes begin."""
    folder = capture.snapshot_folder
    shutil.rmtree(folder, ignore_errors=True)
    with autocommit_session(capture) as connection:
        create_publication(connection, capture)
        query(
            connection,
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            capture.slot,
        )
    # The exported snapshot is valid until this connection runs another command.
    with connect(capture, connection_factory=LogicalReplicationConnection) as replication:
        slot = quote_ident(capture.slot, replication)
        created = query(replication, f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT")[0]
        manifest = PostgresManifest(parse_lsn(created[1]), time.time_ns() // 1_000_000)
        if capture.snapshot != "never":
            manifest = replace(manifest, chunks=_write_rows(capture, manifest, created[2]))
    manifest.save(folder)
    return manifest


def _write_rows(capture: PostgresCapture, manifest: PostgresManifest, exported: str) -> int:
    with connect(capture) as connection:
        connection.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
        query(connection, "SET TRANSACTION SNAPSHOT %s", exported)
        query(connection, SESSION_SETTINGS)
        tables = captured_tables(connection, capture)
        # After the queries of the catalog, whose values must not be text.
        register_type(_AS_WRITTEN, connection)
        records = snapshot_records(_all_rows(connection, capture, tables, manifest))
        return write_chunks(capture.snapshot_folder, records)


def _all_rows(
    connection: Any, capture: PostgresCapture, tables: Iterable[PostgresTable], at: PostgresManifest
) -> Iterator[tuple[Change, Row]]:
    for table in tables:
        source = PostgresSourceInfo(
            capture.server, at.ts_ms, capture.database, table.schema, table.name, None, at.lsn, "true"
        )
        change = Change(capture.topic_of(table.schema, table.name), table.key, source)
        for row in _table_rows(connection, table):
            yield change, row


def _table_rows(connection: Any, table: PostgresTable) -> Iterator[Row]:
    names = [name for name, _ in table.columns]
    converters = [converter(type_oid) for _, type_oid in table.columns]
    selected = ", ".join(quote_ident(name, connection) for name in names) or "NULL"
    with connection.cursor(name="ottla_snapshot") as cursor:
        cursor.itersize = _FETCH_ROWS
        cursor.execute(f"SELECT {selected} FROM {quote_table(connection, table)}")
        for row in cursor:
            yield {
                name: None if value is None else convert(value)
                for name, value, convert in zip(names, row, converters, strict=False)
            }
