"""The connection to a captured PostgreSQL, the end of its log, its replication slot, and its errors."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.cdc.postgres.lsn import format_lsn, parse_lsn
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.values import SESSION_SETTINGS

_CONNECT_TIMEOUT_S = 10
_FLUSH_TIMEOUT_S = 10
# The server's WAL writer flushes by itself after about 0.2 s.
_OWN_FLUSH_S = 0.5
_FLUSH_PAUSE_S = 0.02
_UNREACHABLE = frozenset(
    {
        errorcodes.ADMIN_SHUTDOWN,
        errorcodes.CRASH_SHUTDOWN,
        errorcodes.CANNOT_CONNECT_NOW,
        errorcodes.TOO_MANY_CONNECTIONS,
        errorcodes.CONNECTION_FAILURE,
        # A reader that was killed still holds the slot.
        errorcodes.OBJECT_IN_USE,
    }
)
_NEW_SNAPSHOT = "Remove the source's checkpoint folder to start over with a new snapshot."


def _connection_settings(capture: PostgresCapture) -> dict[str, Any]:
    return {
        "host": capture.host,
        "port": capture.port,
        "dbname": capture.database,
        "user": capture.user,
        "password": capture.password,
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "client_encoding": "UTF8",
    }


@contextmanager
def connect(capture: PostgresCapture, **more: Any) -> Iterator[Any]:
    """A connection. Raises PipelineError for errors of the server, in the body of the `with` too."""
    try:
        with closing(psycopg2.connect(**_connection_settings(capture), **more)) as connection:
            yield connection
    except psycopg2.Error as error:
        raise _explain(error, capture) from error


@contextmanager
def autocommit_session(capture: PostgresCapture) -> Iterator[Any]:
    """A connection in which every statement is a transaction, with the settings that records need."""
    with connect(capture) as connection:
        connection.autocommit = True
        query(connection, SESSION_SETTINGS)
        yield connection


def query(connection: Any, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)
        return list(cursor.fetchall()) if cursor.description else []


def end_of_log(capture: PostgresCapture) -> int:
    """The end of the log, once it is flushed: all commits before it can be read, and no commit will be added there."""
    with autocommit_session(capture) as connection:
        check_slot(connection, capture)
        written = parse_lsn(query(connection, "SELECT pg_current_wal_insert_lsn()::text")[0][0])
        if not _wait_for_flush(connection, written, _OWN_FLUSH_S):
            _force_flush(connection)
            if not _wait_for_flush(connection, written, _FLUSH_TIMEOUT_S):
                raise RetriableError(
                    f"The database at {capture.address} does not flush its log to disk.", "See its log."
                )
        return written


def _wait_for_flush(connection: Any, lsn: int, timeout_s: float) -> bool:
    give_up = time.monotonic() + timeout_s
    while parse_lsn(query(connection, "SELECT pg_current_wal_flush_lsn()::text")[0][0]) < lsn:
        if time.monotonic() > give_up:
            return False
        time.sleep(_FLUSH_PAUSE_S)
    return True


def _force_flush(connection: Any) -> None:
    """Flushes the log with a commit of our own, because perhaps no other transaction does.

    The last records of a transaction that stays open may wait for its end, and an LSN at the very start of a page is
    reached only by the next record. A commit is flushed at once only if its transaction wrote something: so it writes a
    logical message, which our readers do not ask for.
    """
    query(connection, "SET synchronous_commit = local")
    query(connection, "SELECT pg_logical_emit_message(true, 'ottla', '')")


def check_slot(connection: Any, capture: PostgresCapture) -> None:
    found = query(
        connection, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", capture.slot
    )
    if not found:
        raise PipelineError(
            f"The replication slot {capture.slot} of the database at {capture.address} no longer exists.",
            _NEW_SNAPSHOT,
        )
    if found[0][0] == "lost":
        raise PipelineError(
            f"The database at {capture.address} no longer has the changes from where this source stopped: the slot "
            f"{capture.slot} fell too far behind.",
            f"{_NEW_SNAPSHOT} Let the server keep more of its log (max_slot_wal_keep_size).",
        )


def advance_slot(capture: PostgresCapture, lsn: int) -> None:
    """Lets the server remove its log up to `lsn`. If the slot is in use, a later call does it."""
    try:
        with autocommit_session(capture) as connection:
            query(connection, "SELECT pg_replication_slot_advance(%s, %s)", capture.slot, format_lsn(lsn))
    except RetriableError:
        return


def _explain(error: psycopg2.Error, capture: PostgresCapture) -> PipelineError:
    """What happened and what to do, from the server's error code and message."""
    message = " ".join(str(error).split())
    database = f"The database {capture.database} at {capture.address}"
    if error.pgcode in _UNREACHABLE or (error.pgcode is None and _is_connection_error(error, message)):
        return RetriableError(
            f"{database} cannot be reached: {message}.", "Start it, or fix `host` and `port`."
        )
    if "authentication failed" in message or error.pgcode == errorcodes.INVALID_PASSWORD:
        return PipelineError(
            f"{database} does not accept the user `{capture.user}` with this password.",
            "Fix `user` and `password`.",
        )
    if error.pgcode == errorcodes.INSUFFICIENT_PRIVILEGE:
        return PipelineError(
            f"{database} denies access to the user `{capture.user}`: {message}.",
            f'Grant what is missing: ALTER USER "{capture.user}" REPLICATION; GRANT SELECT ON the tables.',
        )
    return PipelineError(f"{database} reports: {message}.", "Fix the cause and start again.")


def _is_connection_error(error: psycopg2.Error, message: str) -> bool:
    is_rejected = (
        "authentication failed" in message or "does not exist" in message or "no pg_hba.conf" in message
    )
    return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) and not is_rejected
