"""The schema history: which columns a captured table had from which transaction on, kept beside the checkpoint.

Every version is a file of its own, named by its table and position, so that a batch that is read again, on another
machine too, writes the same file again. Rows in the binlog take their columns' names from it where the server does not
write them there itself (`binlog_row_metadata`).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY
from ottla.pipeline.ingest.cdc.mysql.positions import Place
from ottla.pipeline.ingest.cdc.state_files import write_text

NAME_MAX = 150


@dataclass(frozen=True)
class Described:
    """What the binlog may leave out of a column."""

    name: str
    unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Version:
    """`since` is the position after which it holds. `columns` are None where a statement changed them, and the
    binlog has not shown yet to what."""

    db: str
    table: str
    since: str
    columns: tuple[Described, ...] | None
    key: tuple[str, ...] = ()
    ddl: str | None = None

    def same_table(self, other: "Version") -> bool:
        return self.shape() == other.shape()

    def shape(self) -> tuple[object, ...]:
        columns = self.columns or ()
        return tuple((column.name, column.unsigned, column.labels) for column in columns), self.key

    @classmethod
    def from_json(cls, text: str) -> "Version":
        fields = json.loads(text)
        columns = fields["columns"]
        if columns is not None:
            fields["columns"] = tuple(
                Described(**{**column, "labels": tuple(column["labels"])}) for column in columns
            )
        return cls(**{**fields, "key": tuple(fields["key"])})


class SchemaHistory:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self, version: Version) -> None:
        kind = "statement" if version.columns is None else "columns"
        folder = self.of_table(version.db, version.table)
        write_text(
            folder / f"{file_name(version.since)}.{kind}.json",
            json.dumps(asdict(version), ensure_ascii=False),
        )

    def at(self, db: str, table: str, position: Place) -> Version | None:
        """The version that holds for the transaction after `position`: of two at one place, the shown columns."""
        known = [version for version in self.versions(db, table) if holds(version, position)]
        parse = type(position).parse
        return max(known, key=lambda v: (parse(v.since).age, v.columns is not None), default=None)

    def versions(self, db: str, table: str) -> Iterator[Version]:
        for path in sorted(self.of_table(db, table).glob("*.json")):
            yield Version.from_json(path.read_text())

    def of_table(self, db: str, table: str) -> Path:
        return self.folder / f"{quote(db, safe='')}.{quote(table, safe='')}"


def file_name(since: str) -> str:
    """A set of GTIDs may be longer than a file's name."""
    if len(since) > NAME_MAX:
        return hashlib.sha256(since.encode()).hexdigest()
    return since or "begin"


def holds(version: Version, position: Place) -> bool:
    return position.reaches(type(position).parse(version.since))
