"""Where a change comes from: the `source` of Debezium's envelope, for each database."""

from dataclasses import dataclass
from functools import cached_property

from ottla import __version__
from ottla.pipeline.ingest.cdc.envelope import ENCODE


@dataclass(frozen=True)
class PostgresOrigin:
    """`lsn` is that of the transaction's commit, so that it is the same however the transaction is read."""

    name: str
    ts_ms: int
    db: str
    schema: str
    table: str
    transaction: int | None
    lsn: int
    snapshot: str = "false"

    @property
    def table_id(self) -> str:
        return f"{self.schema}.{self.table}"

    def text(self, row: int) -> str:
        return self.whole

    @cached_property
    def whole(self) -> str:
        fields = {
            "version": __version__,
            "connector": "postgresql",
            "name": self.name,
            "ts_ms": self.ts_ms,
            "snapshot": self.snapshot,
            "db": self.db,
            "schema": self.schema,
            "table": self.table,
            "txId": self.transaction,
            "lsn": self.lsn,
            "xmin": None,
        }
        return ENCODE(fields)
