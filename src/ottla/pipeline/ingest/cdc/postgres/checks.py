"""Checks before the start: asks the real database for everything that would stop its capture."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.checks import check_state_folder, check_topics, topics_of
from ottla.pipeline.ingest.cdc.postgres.server import autocommit_session, check_slot, query
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.tables import (
    PostgresTable,
    captured_tables,
    has_publication,
    unpublished_tables,
)
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Context, Finding

_VERSION_MIN = 120000


def check_capture(capture: PostgresCapture, where: str, context: Context) -> Iterator[Finding]:
    try:
        check_state_folder(capture)
        with autocommit_session(capture) as connection:
            tables = captured_tables(connection, capture)
            findings = [
                *_check_server(connection, capture, where),
                *_check_slot(connection, capture, where),
                *_check_publication(connection, capture, where),
                *_check_tables(tables, capture, where),
            ]
    except PipelineError as error:
        yield Finding(where, error.what, error.remedy)
        return
    yield from findings
    topics = topics_of(capture.topic, (capture.topic_of(table.schema, table.name) for table in tables))
    yield from check_topics(topics, where, context)


def _check_server(connection: Any, capture: PostgresCapture, where: str) -> Iterator[Finding]:
    if connection.server_version < _VERSION_MIN:
        yield Finding(
            where,
            f"The database at {capture.address} is older than PostgreSQL 12.",
            "Use PostgreSQL 12 or later.",
        )
    level = query(connection, "SHOW wal_level")[0][0]
    if level != "logical":
        yield Finding(
            where,
            f"The log of the database at {capture.address} does not have the changes of rows (wal_level = {level}).",
            "Set wal_level = logical and restart it.",
        )
    may_replicate = query(
        connection, "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    )
    if not may_replicate[0][0]:
        yield Finding(
            where,
            f"The user `{capture.user}` may not replicate.",
            f'ALTER USER "{capture.user}" REPLICATION.',
        )


def _check_slot(connection: Any, capture: PostgresCapture, where: str) -> Iterator[Finding]:
    """A source that has started needs its slot; a new one needs a free slot."""
    if Checkpoint.at(str(Path(capture.state).parent)).last_offset():
        try:
            check_slot(connection, capture)
        except PipelineError as error:
            yield Finding(where, error.what, error.remedy)
        return
    used, slots_max = query(
        connection,
        "SELECT (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')",
    )[0]
    if used >= int(slots_max):
        yield Finding(
            where,
            f"The database at {capture.address} has no free replication slot (max_replication_slots = {slots_max}).",
            "Drop a slot that is not used, or set max_replication_slots higher and restart it.",
        )


def _check_publication(connection: Any, capture: PostgresCapture, where: str) -> Iterator[Finding]:
    if not has_publication(connection, capture):
        return
    for table in unpublished_tables(connection, capture):
        yield Finding(
            where,
            f"The publication {capture.publication} does not have {table}: its changes will be missing.",
            f"ALTER PUBLICATION {capture.publication} ADD TABLE {table}.",
        )


def _check_tables(tables: list[PostgresTable], capture: PostgresCapture, where: str) -> Iterator[Finding]:
    if not tables:
        yield Finding(
            where,
            f"No table of {capture.database} matches {', '.join(capture.tables)}.",
            "Fix `tables`.",
            is_warning=True,
        )
    for table in tables:
        if not table.key:
            yield Finding(
                where,
                f"{table.schema}.{table.name} has no primary key: its records have no key, and once it is published, "
                "PostgreSQL rejects updates and deletes of its rows unless its replica identity is FULL.",
                "Give it a primary key.",
                is_warning=True,
            )
