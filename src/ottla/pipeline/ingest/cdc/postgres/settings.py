"""The settings of a captured PostgreSQL database, and what the data source needs of them."""

import re
import zlib
from dataclasses import asdict, dataclass

from ottla.pipeline.ingest.cdc.capture import DatabaseCapture, check_topic_template
from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class PostgresSettings:
    """`[sources.NAME]` with `kind = "postgres"`."""

    host: str = setting("The database server's host.")
    database: str = setting("The database whose tables are captured.")
    user: str = setting("The user: needs SELECT on the tables, and REPLICATION.")
    tables: tuple[str, ...] = setting(
        'The captured tables as SCHEMA.TABLE; * and ? are wildcards: ["public.*"].'
    )
    topic: str = setting(
        "The topic of the changes; with {server}, {db} (the schema) and {table} in it, one topic for each."
    )
    password: str = setting("The user's password; better as ${NAME} from the environment.", "")
    port: int = setting("The database server's port.", 5432)
    server: str = setting(
        "The name of the server in records (`source.name`) and topics; the source's own if empty.", ""
    )
    snapshot: str = setting(
        "initial: the existing rows, then the changes; never: only the changes from the first start on.",
        "initial",
        choices=("initial", "never"),
    )
    slot: str = setting(
        "The replication slot, created at the first start; named after the pipeline and the source if empty.",
        "",
    )
    publication: str = setting(
        "The publication, created for the captured tables if it is missing; named like the slot if empty.", ""
    )
    max_wal_mb_per_batch: int = setting("The most megabytes of the server's log that one batch covers.", 64)
    retry_s: float = setting("How long to retry while the database cannot be reached, in seconds.", 60.0)


@dataclass(frozen=True, kw_only=True)
class PostgresCapture(DatabaseCapture):
    database: str
    slot: str
    publication: str
    max_wal_mb_per_batch: int


def postgres_capture(settings: PostgresSettings, name: str, identity: str, state: str) -> PostgresCapture:
    """`identity` is unique among pipelines: two captures with one slot would each miss changes."""
    check_topic_template(settings.topic, name)
    slot = settings.slot or slot_name(identity)
    names = {
        "server": settings.server or name,
        "slot": slot,
        "publication": settings.publication or slot,
        "state": state,
    }
    return PostgresCapture(**{**asdict(settings), **names})


def slot_name(identity: str) -> str:
    """PostgreSQL accepts small letters, digits and _, at most 63 of them."""
    readable = re.sub(r"[^a-z0-9_]", "_", identity.lower())[:40]
    return f"ottla_{readable}_{zlib.crc32(identity.encode()):08x}"
