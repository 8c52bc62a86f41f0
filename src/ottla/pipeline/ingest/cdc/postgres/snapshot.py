"""The consistent snapshot of a PostgreSQL database: its rows as of the place where its replication slot begins.

Making the slot exports the snapshot, so that nothing lies between the two. As with MariaDB the records go into files
beside the checkpoint, and the manifest is written last: a slot without one was made for nothing, and is made anew.
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

from ottla.pipeline.ingest.cdc.envelope import Change, Record
from ottla.pipeline.ingest.cdc.postgres.lsn import parse_lsn
from ottla.pipeline.ingest.cdc.postgres.server import connected, query, session
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.source_info import PostgresOrigin
from ottla.pipeline.ingest.cdc.postgres.tables import PostgresTable, captured_tables, make_publication
from ottla.pipeline.ingest.cdc.postgres.values import SESSION, reader
from ottla.pipeline.ingest.cdc.snapshot_files import marking_last, write_chunks
from ottla.pipeline.ingest.cdc.state_files import SnapshotManifest

FETCH_ROWS = 5_000
# Every type as the server writes it, as logical decoding does; a cast to text would cut the blanks off char(n).
AS_WRITTEN = new_type(tuple(string_types), "AS_WRITTEN", lambda written, _: written)


@dataclass(frozen=True)
class PostgresManifest(SnapshotManifest):
    """`lsn` is where the changes begin, `chunks` the number of the snapshot's files."""

    lsn: int
    ts_ms: int
    chunks: int = 0


def take(capture: PostgresCapture) -> PostgresManifest:
    """With `snapshot = "never"` it is empty, and only remembers where the changes begin."""
    folder = capture.snapshot_folder
    shutil.rmtree(folder, ignore_errors=True)
    with session(capture) as connection:
        make_publication(connection, capture)
        query(
            connection,
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            capture.slot,
        )
    # The exported snapshot lives as long as this connection does nothing else.
    with connected(capture, connection_factory=LogicalReplicationConnection) as replication:
        slot = quote_ident(capture.slot, replication)
        made = query(replication, f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT")[0]
        manifest = PostgresManifest(parse_lsn(made[1]), time.time_ns() // 1_000_000)
        if capture.snapshot != "never":
            manifest = replace(manifest, chunks=staged(capture, manifest, made[2]))
    manifest.save(folder)
    return manifest


def staged(capture: PostgresCapture, manifest: PostgresManifest, exported: str) -> int:
    with connected(capture) as connection:
        connection.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
        query(connection, "SET TRANSACTION SNAPSHOT %s", exported)
        query(connection, SESSION)
        tables = captured_tables(connection, capture)
        # Only from here on: what we ask the catalog for is not read as text.
        register_type(AS_WRITTEN, connection)
        return write_chunks(capture.snapshot_folder, snapshot_records(connection, capture, tables, manifest))


def snapshot_records(
    connection: Any, capture: PostgresCapture, tables: Iterable[PostgresTable], at: PostgresManifest
) -> Iterator[Record]:
    """The last row is marked: whoever reads the topic knows that the snapshot is whole."""
    for (table, source, row), is_last in marking_last(all_rows(connection, capture, tables, at)):
        marked = replace(source, snapshot="last") if is_last else source
        yield Change(capture.topic_of(table.schema, table.name), table.key, marked).read(row)


def all_rows(
    connection: Any, capture: PostgresCapture, tables: Iterable[PostgresTable], at: PostgresManifest
) -> Iterator[tuple[PostgresTable, PostgresOrigin, dict[str, Any]]]:
    for table in tables:
        source = PostgresOrigin(
            capture.server, at.ts_ms, capture.database, table.schema, table.name, None, at.lsn, "true"
        )
        for row in table_rows(connection, table):
            yield table, source, row


def table_rows(connection: Any, table: PostgresTable) -> Iterator[dict[str, Any]]:
    names = [name for name, _ in table.columns]
    readers = [reader(type_oid) for _, type_oid in table.columns]
    selected = ", ".join(quote_ident(name, connection) for name in names) or "NULL"
    place = f"{quote_ident(table.schema, connection)}.{quote_ident(table.name, connection)}"
    with connection.cursor(name="ottla_snapshot") as cursor:
        cursor.itersize = FETCH_ROWS
        cursor.execute(f"SELECT {selected} FROM {place}")
        for row in cursor:
            yield {
                name: None if value is None else read(value)
                for name, value, read in zip(names, row, readers, strict=False)
            }
