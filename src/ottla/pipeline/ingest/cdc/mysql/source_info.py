"""Where a change comes from: the `source` of Debezium's envelope, for each database."""

from dataclasses import dataclass
from functools import cached_property

from ottla import __version__
from ottla.pipeline.ingest.cdc.envelope import ENCODE


@dataclass(frozen=True)
class BinlogOrigin:
    """`connector` is "mariadb" or "mysql", `snapshot` "true", "last" for a snapshot's last row, or "false"."""

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

    def text(self, row: int) -> str:
        return f'{self.until_row},"row":{row},"thread":null,"query":null}}'

    @cached_property
    def until_row(self) -> str:
        """The same for all rows of an event, so it is written once."""
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
        return ENCODE(fields).removesuffix("}")
