"""The `source` of Debezium's envelope for a change of PostgreSQL."""

from dataclasses import dataclass, replace
from functools import cached_property

from ottla import __version__
from ottla.pipeline.ingest.cdc.envelope import encode_json


@dataclass(frozen=True)
class PostgresSourceInfo:
    """`lsn` is that of the transaction's commit: it does not depend on the batch in which the change is read."""

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

    def to_json(self, row: int) -> str:
        return self._json

    def marked_last(self) -> "PostgresSourceInfo":
        return replace(self, snapshot="last")

    @cached_property
    def _json(self) -> str:
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
        return encode_json(fields)
