"""Captured tables as PostgreSQL's catalog describes them, and the publication that has their changes."""

from dataclasses import dataclass
from typing import Any

from psycopg2.extensions import quote_ident

from ottla.pipeline.ingest.cdc.postgres.server import query
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture

_TABLES = (
    "SELECT n.nspname, c.relname, c.relreplident, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    " AND c.relpersistence = 'p' ORDER BY 1, 2"
)
_COLUMNS = (
    "SELECT attname, atttypid FROM pg_attribute"
    " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
)
_KEY = (
    "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
    " WHERE i.indrelid = %s AND CASE WHEN %s = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY a.attnum"
)


@dataclass(frozen=True)
class PostgresTable:
    """`identity` is the table's replica identity, `columns` are names and type oids, `key` names the key's columns."""

    schema: str
    name: str
    identity: str
    columns: tuple[tuple[str, int], ...]
    key: tuple[str, ...]


def captured_tables(connection: Any, capture: PostgresCapture) -> list[PostgresTable]:
    return [
        PostgresTable(
            schema,
            name,
            identity,
            tuple(query(connection, _COLUMNS, oid)),
            key_columns(connection, oid, identity),
        )
        for schema, name, identity, oid in query(connection, _TABLES)
        if capture.captures(schema, name)
    ]


def key_columns(connection: Any, oid: int, identity: str) -> tuple[str, ...]:
    """Those of the index that is the table's replica identity, otherwise those of its primary key."""
    return tuple(name for (name,) in query(connection, _KEY, oid, identity))


def quote_table(connection: Any, table: PostgresTable) -> str:
    return f"{quote_ident(table.schema, connection)}.{quote_ident(table.name, connection)}"


def has_publication(connection: Any, capture: PostgresCapture) -> bool:
    return bool(query(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", capture.publication))


def unpublished_tables(connection: Any, capture: PostgresCapture) -> list[str]:
    """Captured tables whose changes the publication does not have."""
    published = {
        (schema, name)
        for schema, name in query(
            connection,
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s",
            capture.publication,
        )
    }
    return [
        f"{table.schema}.{table.name}"
        for table in captured_tables(connection, capture)
        if (table.schema, table.name) not in published
    ]


def create_publication(connection: Any, capture: PostgresCapture) -> None:
    """Does nothing if it exists."""
    if has_publication(connection, capture):
        return
    names = ", ".join(quote_table(connection, table) for table in captured_tables(connection, capture))
    tables = f" FOR TABLE {names}" if names else ""
    query(connection, f"CREATE PUBLICATION {quote_ident(capture.publication, connection)}{tables}")
