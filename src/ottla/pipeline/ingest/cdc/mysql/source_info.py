"""The `source` of Debezium's envelope for a change of MariaDB or MySQL."""

from dataclasses import dataclass, replace
from functools import cached_property

from ottla import __version__
from ottla.pipeline.ingest.cdc.envelope import encode_json


@dataclass(frozen=True)
class BinlogSourceInfo:
    """`connector` is "mariadb" or "mysql"; `snapshot` is "true", "last" for a snapshot's last row, or "false"."""

    connector: str
    name: str
    ts_ms: int
    db: str
    table: str
    server_id: int
    gtid: str | None
    file: str
    pos: int
    snapshot: str = "false"

    @property
    def table_id(self) -> str:
        return f"{self.db}.{self.table}"

    def to_json(self, row: int) -> str:
        return f'{self._until_row},"row":{row},"thread":null,"query":null}}'

    def marked_last(self) -> "BinlogSourceInfo":
        return replace(self, snapshot="last")

    @cached_property
    def _until_row(self) -> str:
        """The same for all rows of an event, so it is encoded once."""
        fields = {
            "version": __version__,
            "connector": self.connector,
            "name": self.name,
            "ts_ms": self.ts_ms,
            "snapshot": self.snapshot,
            "db": self.db,
            "table": self.table,
            "server_id": self.server_id,
            "gtid": self.gtid,
            "file": self.file,
            "pos": self.pos,
        }
        return encode_json(fields).removesuffix("}")
