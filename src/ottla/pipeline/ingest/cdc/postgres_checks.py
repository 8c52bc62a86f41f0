"""What would stop the capture of a PostgreSQL database, asked of the real one before anything starts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.checks import remote_state_problem, topic_problems, wanted_topics
from ottla.pipeline.ingest.cdc.postgres_server import check_slot, query, session
from ottla.pipeline.ingest.cdc.postgres_settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres_tables import (
    PostgresTable,
    captured_tables,
    has_publication,
    unpublished,
)
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Context, Problem

VERSION_MIN = 120000


def postgres_problems_of(capture: PostgresCapture, where: str, context: Context) -> Iterator[Problem]:
    if "://" in capture.state:
        yield remote_state_problem(capture.state, where)
        return
    try:
        with session(capture) as connection:
            tables = captured_tables(connection, capture)
            found = [
                *server_problems(connection, capture),
                *slot_problems(connection, capture),
                *publication_problems(connection, capture),
                *table_problems(tables, capture),
            ]
    except PipelineError as error:
        yield Problem(where, error.what, error.remedy)
        return
    for what, remedy, is_warning in found:
        yield Problem(where, what, remedy, is_warning)
    topics = wanted_topics(capture.topic, (capture.topic_of(table.schema, table.name) for table in tables))
    yield from topic_problems(topics, where, context)


def server_problems(connection: Any, capture: PostgresCapture) -> Iterator[tuple[str, str, bool]]:
    if connection.server_version < VERSION_MIN:
        yield f"The database at {capture.address} is older than PostgreSQL 12.", "Use a later one.", False
    level = query(connection, "SHOW wal_level")[0][0]
    if level != "logical":
        yield (
            f"The log of the database at {capture.address} does not hold changes of rows (wal_level = {level}).",
            "Set wal_level = logical and restart it.",
            False,
        )
    may_replicate = query(
        connection, "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    )
    if not may_replicate[0][0]:
        yield (
            f"The user `{capture.user}` may not replicate.",
            f'ALTER USER "{capture.user}" REPLICATION.',
            False,
        )


def slot_problems(connection: Any, capture: PostgresCapture) -> Iterator[tuple[str, str, bool]]:
    """A source that has begun needs its slot; one that begins needs room for it."""
    if Checkpoint.at(str(Path(capture.state).parent)).last_offset():
        try:
            check_slot(connection, capture)
        except PipelineError as error:
            yield error.what, error.remedy, False
        return
    used, most = query(
        connection,
        "SELECT (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')",
    )[0]
    if used >= int(most):
        yield (
            f"The database at {capture.address} has no replication slot left (max_replication_slots = {most}).",
            "Drop one that nobody reads, or set max_replication_slots higher and restart it.",
            False,
        )


def publication_problems(connection: Any, capture: PostgresCapture) -> Iterator[tuple[str, str, bool]]:
    if not has_publication(connection, capture):
        return
    for table in unpublished(connection, capture):
        yield (
            f"The publication {capture.publication} does not hold {table}: its changes will be missing.",
            f"ALTER PUBLICATION {capture.publication} ADD TABLE {table}.",
            False,
        )


def table_problems(tables: list[PostgresTable], capture: PostgresCapture) -> Iterator[tuple[str, str, bool]]:
    if not tables:
        yield f"No table of {capture.database} matches {', '.join(capture.tables)}.", "Mend `tables`.", True
    for table in tables:
        if not table.key:
            yield (
                f"{table.schema}.{table.name} has no primary key: its records have no key, and PostgreSQL refuses "
                "updates and deletes of it once it is published, unless its replica identity is FULL.",
                "Give it a primary key.",
                True,
            )
