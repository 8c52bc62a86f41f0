"""What a person sets for the capture of a MariaDB or MySQL server, and what the data source needs of it."""

import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from ottla.pipeline.ingest.cdc.capture import DatabaseCapture, checked_topic
from ottla.pipeline.settings import setting

# Replicas of people have small numbers; ours begin far above, and stay within four bytes.
SERVER_ID_MIN = 1_000_000_000


@dataclass(frozen=True)
class MySqlSettings:
    """`[sources.NAME]` with `kind = "mysql"`."""

    host: str = setting("The database server's host.")
    user: str = setting("The user: needs SELECT and REPLICATION SLAVE, and LOCK TABLES with MySQL.")
    tables: tuple[str, ...] = setting(
        'The captured tables as DATABASE.TABLE; * and ? stand for any: ["shop.*"].'
    )
    topic: str = setting(
        "The topic of the changes; {server}, {db} and {table} in it make several, as Debezium's "
        '"{server}.{db}.{table}".'
    )
    password: str = setting("The user's password; better as ${NAME} from the environment.", "")
    port: int = setting("The database server's port.", 3306)
    server: str = setting(
        "The name of the server in records (`source.name`) and topics; the source's own if empty.", ""
    )
    snapshot: str = setting(
        "initial: the rows that are there, then the changes; never: changes from the first start on.",
        "initial",
        choices=("initial", "never"),
    )
    server_id: int = setting(
        "The number under which the binlog is read, unique among the server's replicas; 0: made from the "
        "pipeline's and the source's name.",
        0,
    )
    max_transactions_per_batch: int = setting("Transactions of one batch at most.", 10_000)
    retry_s: float = setting("How long a database that is away is waited for, in seconds.", 60.0)


@dataclass(frozen=True, kw_only=True)
class Capture(DatabaseCapture):
    server_id: int
    max_transactions_per_batch: int

    @property
    def schema_folder(self) -> Path:
        return Path(self.state) / "schema"


def capture_of(settings: MySqlSettings, name: str, identity: str, state: str) -> Capture:
    """`identity` is unique among pipelines: two that captured under one number would cut each other off."""
    checked_topic(settings.topic, name)
    fields = asdict(settings)
    number = settings.server_id or SERVER_ID_MIN + zlib.crc32(identity.encode()) % SERVER_ID_MIN
    return Capture(**{**fields, "server": settings.server or name, "server_id": number, "state": state})
