"""Captured tables as the server's information_schema describes them, for the snapshot and the schema history."""

import re
from dataclasses import dataclass
from typing import Any

from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY
from ottla.pipeline.ingest.cdc.mysql.schema_history import ColumnSchema, TableVersion
from ottla.pipeline.ingest.cdc.mysql.server import query
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture

_SYSTEM_DATABASES = ("mysql", "information_schema", "performance_schema", "sys")
_TABLES = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables"
    " WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_schema, table_name"
)
_COLUMNS = (
    "SELECT column_name, data_type, column_type, character_set_name, datetime_precision"
    " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_PRIMARY_KEY = (
    "SELECT column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY'"
)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class TableColumn:
    """`data_type` is the bare name of the type, `column_type` all of it: `decimal`, `decimal(10,2) unsigned`."""

    name: str
    data_type: str
    column_type: str
    charset: str | None
    precision: int

    def schema(self) -> ColumnSchema:
        labels = self._labels() if self.data_type in ("enum", "set") else ()
        return ColumnSchema(self.name, "unsigned" in self.column_type, self.charset or BINARY, labels)

    def _labels(self) -> tuple[str, ...]:
        return tuple(label.replace("''", "'") for label in _LABEL.findall(self.column_type))


@dataclass(frozen=True)
class CapturedTable:
    """`key` has the primary key's columns in the order of the table."""

    db: str
    name: str
    engine: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    def version(self, since: str) -> TableVersion:
        return TableVersion(
            self.db, self.name, since, tuple(column.schema() for column in self.columns), self.key
        )


def captured_tables(connection: Any, capture: MySqlCapture) -> list[CapturedTable]:
    return [_describe(connection, *table) for table in _list_tables(connection, capture)]


def captured_names(connection: Any, capture: MySqlCapture) -> list[tuple[str, str]]:
    return [(db, name) for db, name, _ in _list_tables(connection, capture)]


def _list_tables(connection: Any, capture: MySqlCapture) -> list[tuple[str, str, str]]:
    return [
        (db, name, engine or "")
        for db, name, engine in query(connection, _TABLES)
        if db not in _SYSTEM_DATABASES and capture.captures(db, name)
    ]


def _describe(connection: Any, db: str, name: str, engine: str) -> CapturedTable:
    columns = tuple(
        TableColumn(column, data_type.lower(), column_type, charset, int(precision or 0))
        for column, data_type, column_type, charset, precision in query(connection, _COLUMNS, db, name)
    )
    in_key = {column for (column,) in query(connection, _PRIMARY_KEY, db, name)}
    return CapturedTable(
        db, name, engine, columns, tuple(column.name for column in columns if column.name in in_key)
    )
