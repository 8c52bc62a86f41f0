"""The settings of a captured MariaDB or MySQL server, and what the data source needs of them."""

import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from ottla.pipeline.ingest.cdc.capture import DatabaseCapture, check_topic_template
from ottla.pipeline.settings import setting

# People give their replicas small ids. Ours begin far above, and stay within four bytes.
_SERVER_ID_MIN = 1_000_000_000


@dataclass(frozen=True)
class MySqlSettings:
    """`[sources.NAME]` with `kind = "mysql"`."""

    host: str = setting("The database server's host.")
    user: str = setting("The user: needs SELECT and REPLICATION SLAVE, and LOCK TABLES with MySQL.")
    tables: tuple[str, ...] = setting(
        'The captured tables as DATABASE.TABLE; * and ? are wildcards: ["shop.*"].'
    )
    topic: str = setting(
        "The topic of the changes; with {server}, {db} and {table} in it, one topic for each, as Debezium's "
        '"{server}.{db}.{table}".'
    )
    password: str = setting("The user's password; better as ${NAME} from the environment.", "")
    port: int = setting("The database server's port.", 3306)
    server: str = setting(
        "The name of the server in records (`source.name`) and topics; the source's own if empty.", ""
    )
    snapshot: str = setting(
        "initial: the existing rows, then the changes; never: only the changes from the first start on.",
        "initial",
        choices=("initial", "never"),
    )
    server_id: int = setting(
        "The server id under which the binlog is read, unique among the server's replicas; 0: derived from the "
        "names of the pipeline and the source.",
        0,
    )
    max_transactions_per_batch: int = setting("The most transactions of one batch.", 10_000)
    retry_s: float = setting("How long to retry while the database cannot be reached, in seconds.", 60.0)


@dataclass(frozen=True, kw_only=True)
class MySqlCapture(DatabaseCapture):
    server_id: int
    max_transactions_per_batch: int

    @property
    def schema_folder(self) -> Path:
        return Path(self.state) / "schema"


def mysql_capture(settings: MySqlSettings, name: str, identity: str, state: str) -> MySqlCapture:
    """`identity` is unique among pipelines: the server disconnects a reader when another uses its server id."""
    check_topic_template(settings.topic, name)
    server_id = settings.server_id or _SERVER_ID_MIN + zlib.crc32(identity.encode()) % _SERVER_ID_MIN
    names = {"server": settings.server or name, "server_id": server_id, "state": state}
    return MySqlCapture(**{**asdict(settings), **names})
