"""Captured tables as the server describes them now, for the snapshot and for the first version of the history."""

import re
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY
from ottla.pipeline.ingest.cdc.mysql.schema_history import Described, Version
from ottla.pipeline.ingest.cdc.mysql.server import query
from ottla.pipeline.ingest.cdc.mysql.settings import Capture

OWN_DATABASES = ("mysql", "information_schema", "performance_schema", "sys")
TABLES = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_schema, table_name"
)
COLUMNS = (
    "SELECT column_name, data_type, column_type, character_set_name, datetime_precision"
    " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
PRIMARY_KEY = (
    "SELECT column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY'"
)
LABEL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class TableColumn:
    """`kind` is the type's bare name, `declared` the whole of it: `decimal`, `decimal(10,2) unsigned`."""

    name: str
    kind: str
    declared: str
    charset: str | None
    precision: int

    def described(self) -> Described:
        labels = self.labels() if self.kind in ("enum", "set") else ()
        return Described(self.name, "unsigned" in self.declared, self.charset or BINARY, labels)

    def labels(self) -> tuple[str, ...]:
        return tuple(label.replace("''", "'") for label in LABEL.findall(self.declared))


@dataclass(frozen=True)
class CapturedTable:
    """`key` holds the primary key's columns in the order of the table."""

    db: str
    name: str
    engine: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    def version(self, since: str) -> Version:
        return Version(
            self.db, self.name, since, tuple(column.described() for column in self.columns), self.key
        )


def captured_tables(connection: Any, capture: Capture) -> list[CapturedTable]:
    return [describe(connection, *row) for row in captured_rows(connection, capture)]


def captured_names(connection: Any, capture: Capture) -> list[tuple[str, str]]:
    return [(db, name) for db, name, _ in captured_rows(connection, capture)]


def captured_rows(connection: Any, capture: Capture) -> list[tuple[str, str, str]]:
    return [
        (db, name, engine or "")
        for db, name, engine in query(connection, TABLES)
        if db not in OWN_DATABASES and capture.captures(db, name)
    ]


def describe(connection: Any, db: str, name: str, engine: str) -> CapturedTable:
    columns = tuple(
        TableColumn(column, kind.lower(), declared, charset, int(precision or 0))
        for column, kind, declared, charset, precision in query(connection, COLUMNS, db, name)
    )
    in_key = {column for (column,) in query(connection, PRIMARY_KEY, db, name)}
    return CapturedTable(
        db, name, engine, columns, tuple(column.name for column in columns if column.name in in_key)
    )
