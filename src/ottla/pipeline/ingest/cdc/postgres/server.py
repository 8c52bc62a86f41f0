"""The connection to the captured PostgreSQL, its faults as sentences, and its replication slot."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.ingest.cdc.postgres.lsn import lsn_text, parse_lsn
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.values import SESSION

CONNECT_TIMEOUT_S = 10
FLUSH_TIMEOUT_S = 10
# The server's writer takes about 0.2 s for what it brings to its disk by itself.
FLUSH_OF_ITSELF_S = 0.5
FLUSH_PAUSE_S = 0.02
AWAY = frozenset(
    {
        errorcodes.ADMIN_SHUTDOWN,
        errorcodes.CRASH_SHUTDOWN,
        errorcodes.CANNOT_CONNECT_NOW,
        errorcodes.TOO_MANY_CONNECTIONS,
        errorcodes.CONNECTION_FAILURE,
        # The slot is still held by a reader that was killed.
        errorcodes.OBJECT_IN_USE,
    }
)
NEW_SNAPSHOT = "Remove the source's checkpoint folder to begin with a new snapshot."


def connection_settings(capture: PostgresCapture) -> dict[str, Any]:
    return {
        "host": capture.host,
        "port": capture.port,
        "dbname": capture.database,
        "user": capture.user,
        "password": capture.password,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "client_encoding": "UTF8",
    }


@contextmanager
def connected(capture: PostgresCapture, **more: Any) -> Iterator[Any]:
    """A connection; faults of it, and of what is done with it, are raised as sentences."""
    try:
        with closing(psycopg2.connect(**connection_settings(capture), **more)) as connection:
            yield connection
    except psycopg2.Error as error:
        raise explained(error, capture) from error


@contextmanager
def session(capture: PostgresCapture) -> Iterator[Any]:
    """A connection for statements that stand alone, which writes values as records need them."""
    with connected(capture) as connection:
        connection.autocommit = True
        query(connection, SESSION)
        yield connection


def query(connection: Any, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)
        return list(cursor.fetchall()) if cursor.description else []


def end_of_log(capture: PostgresCapture) -> int:
    """A place that no record of the log stands across: what commits before it is there, or never will be."""
    with session(capture) as connection:
        check_slot(connection, capture)
        written = parse_lsn(query(connection, "SELECT pg_current_wal_insert_lsn()::text")[0][0])
        if not is_on_disk(connection, written, FLUSH_OF_ITSELF_S):
            bring_log_to_disk(connection)
            if not is_on_disk(connection, written, FLUSH_TIMEOUT_S):
                raise PassingError(
                    f"The database at {capture.address} does not bring its log to its disk.", "See its log."
                )
        return written


def is_on_disk(connection: Any, lsn: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while parse_lsn(query(connection, "SELECT pg_current_wal_flush_lsn()::text")[0][0]) < lsn:
        if time.monotonic() > until:
            return False
        time.sleep(FLUSH_PAUSE_S)
    return True


def bring_log_to_disk(connection: Any) -> None:
    """By a commit of our own. Nobody else's need come: what a transaction that stays open has written last can wait for
    its end, and a place at the very beginning of a page is reached by nothing but the next record.

    Of a message that no reader of ours asks for: a commit is synced at once only where its transaction wrote something.
    """
    query(connection, "SET synchronous_commit = local")
    query(connection, "SELECT pg_logical_emit_message(true, 'ottla', '')")


def check_slot(connection: Any, capture: PostgresCapture) -> None:
    found = query(
        connection, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", capture.slot
    )
    if not found:
        raise PipelineError(
            f"The replication slot {capture.slot} of the database at {capture.address} is gone.", NEW_SNAPSHOT
        )
    if found[0][0] == "lost":
        raise PipelineError(
            f"The database at {capture.address} no longer has the changes from where this source stopped: the slot "
            f"{capture.slot} fell too far behind.",
            f"{NEW_SNAPSHOT} Let the server keep more of its log (max_slot_wal_keep_size).",
        )


def advance(capture: PostgresCapture, lsn: int) -> None:
    """Lets the server forget what is committed. It does so later where the slot is in use."""
    try:
        with session(capture) as connection:
            query(connection, "SELECT pg_replication_slot_advance(%s, %s)", capture.slot, lsn_text(lsn))
    except PassingError:
        return


def explained(error: psycopg2.Error, capture: PostgresCapture) -> PipelineError:
    said = " ".join(str(error).split())
    where = f"The database {capture.database} at {capture.address}"
    if error.pgcode in AWAY or (error.pgcode is None and is_connection_fault(error, said)):
        return PassingError(f"{where} is away: {said}.", "Start it, or mend `host` and `port`.")
    if "authentication failed" in said or error.pgcode == errorcodes.INVALID_PASSWORD:
        return PipelineError(
            f"{where} does not accept the user `{capture.user}` with this password.",
            "Mend `user` and `password`.",
        )
    if error.pgcode == errorcodes.INSUFFICIENT_PRIVILEGE:
        return PipelineError(
            f"{where} refuses the user `{capture.user}`: {said}.",
            f'Grant what is missing: ALTER USER "{capture.user}" REPLICATION; GRANT SELECT ON the tables.',
        )
    return PipelineError(f"{where} says: {said}.", "Mend the cause and start again.")


def is_connection_fault(error: psycopg2.Error, said: str) -> bool:
    is_refused = "authentication failed" in said or "does not exist" in said or "no pg_hba.conf" in said
    return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) and not is_refused
