"""The schema history: which columns a captured table had from which transaction on, kept inside the checkpoint.

Every version is a file of its own, named after its table and position: a batch that is read again, perhaps on another
machine, writes the same file again. Rows in the binlog take the names of their columns from the history if the server
does not write them into the binlog itself (`binlog_row_metadata`).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition
from ottla.pipeline.ingest.cdc.state_files import write_state_file

_NAME_MAX = 150


@dataclass(frozen=True)
class ColumnSchema:
    """The properties of a column that the binlog may leave out."""

    name: str
    unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableVersion:
    """Holds for transactions after the position `since`.

    `columns` is None between a statement that changed them (`ddl`) and the first event that describes the new ones.
    """

    db: str
    table: str
    since: str
    columns: tuple[ColumnSchema, ...] | None
    key: tuple[str, ...] = ()
    ddl: str | None = None

    def has_same_columns(self, other: "TableVersion") -> bool:
        return self._shape() == other._shape()

    def _shape(self) -> tuple[object, ...]:
        columns = self.columns or ()
        return tuple((column.name, column.unsigned, column.labels) for column in columns), self.key

    @classmethod
    def from_json(cls, text: str) -> "TableVersion":
        fields = json.loads(text)
        columns = fields["columns"]
        if columns is not None:
            fields["columns"] = tuple(
                ColumnSchema(**{**column, "labels": tuple(column["labels"])}) for column in columns
            )
        return cls(**{**fields, "key": tuple(fields["key"])})


class SchemaHistory:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, version: TableVersion) -> None:
        kind = "statement" if version.columns is None else "columns"
        folder = self._table_folder(version.db, version.table)
        write_state_file(
            folder / f"{_file_name(version.since)}.{kind}.json",
            json.dumps(asdict(version), ensure_ascii=False),
        )

    def at(self, db: str, table: str, position: BinlogPosition) -> TableVersion | None:
        """The version of the table for the transaction after `position`.

        Of two versions with the same position, the one with columns is newer than the one without.
        """
        parse = type(position).parse
        known = [version for version in self.versions(db, table) if position.reaches(parse(version.since))]
        return max(known, key=lambda v: (parse(v.since).progress, v.columns is not None), default=None)

    def versions(self, db: str, table: str) -> Iterator[TableVersion]:
        for path in sorted(self._table_folder(db, table).glob("*.json")):
            yield TableVersion.from_json(path.read_text())

    def _table_folder(self, db: str, table: str) -> Path:
        return self.folder / f"{quote(db, safe='')}.{quote(table, safe='')}"


def _file_name(since: str) -> str:
    """A set of GTIDs may be longer than a file's name can be."""
    if len(since) > _NAME_MAX:
        return hashlib.sha256(since.encode()).hexdigest()
    return since or "begin"
