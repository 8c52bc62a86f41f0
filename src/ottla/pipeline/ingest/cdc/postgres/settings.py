"""What a person sets for the capture of a PostgreSQL database, and what the data source needs of it."""

import re
import zlib
from dataclasses import asdict, dataclass

from ottla.pipeline.ingest.cdc.capture import DatabaseCapture, checked_topic
from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class PostgresSettings:
    """`[sources.NAME]` with `kind = "postgres"`."""

    host: str = setting("The database server's host.")
    database: str = setting("The database whose tables are captured.")
    user: str = setting("The user: needs SELECT on the tables, and REPLICATION.")
    tables: tuple[str, ...] = setting(
        'The captured tables as SCHEMA.TABLE; * and ? stand for any: ["public.*"].'
    )
    topic: str = setting(
        "The topic of the changes; {server}, {db} (the schema) and {table} in it make several."
    )
    password: str = setting("The user's password; better as ${NAME} from the environment.", "")
    port: int = setting("The database server's port.", 5432)
    server: str = setting(
        "The name of the server in records (`source.name`) and topics; the source's own if empty.", ""
    )
    snapshot: str = setting(
        "initial: the rows that are there, then the changes; never: changes from the first start on.",
        "initial",
        choices=("initial", "never"),
    )
    slot: str = setting(
        "The replication slot, made at the first start; named after the pipeline and the source if empty.", ""
    )
    publication: str = setting(
        "The publication, made for the captured tables where it is missing; named as the slot if empty.", ""
    )
    max_wal_mb_per_batch: int = setting("Megabytes of the server's log that one batch goes over at most.", 64)
    retry_s: float = setting("How long a database that is away is waited for, in seconds.", 60.0)


@dataclass(frozen=True, kw_only=True)
class PostgresCapture(DatabaseCapture):
    database: str
    slot: str
    publication: str
    max_wal_mb_per_batch: int


def postgres_capture_of(settings: PostgresSettings, name: str, identity: str, state: str) -> PostgresCapture:
    """`identity` is unique among pipelines: two on one slot would take changes from each other."""
    checked_topic(settings.topic, name)
    slot = settings.slot or slot_name(identity)
    names = {
        "server": settings.server or name,
        "slot": slot,
        "publication": settings.publication or slot,
        "state": state,
    }
    return PostgresCapture(**{**asdict(settings), **names})


def slot_name(identity: str) -> str:
    """PostgreSQL takes small letters, digits and _, 63 of them at most."""
    readable = re.sub(r"[^a-z0-9_]", "_", identity.lower())[:40]
    return f"ottla_{readable}_{zlib.crc32(identity.encode()):08x}"
