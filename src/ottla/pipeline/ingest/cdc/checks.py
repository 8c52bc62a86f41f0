"""What would stop the capture of a server, asked of the real one before anything starts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysqlreplication.event import RotateEvent

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.binlog import Lost, stream
from ottla.pipeline.ingest.cdc.gtid import Position
from ottla.pipeline.ingest.cdc.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.places import Place, place_like
from ottla.pipeline.ingest.cdc.selecting import quoted
from ottla.pipeline.ingest.cdc.server import connected, explained, is_mariadb, query
from ottla.pipeline.ingest.cdc.settings import Capture
from ottla.pipeline.ingest.cdc.tables import CapturedTable, captured_tables
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Context, Problem
from ottla.pipeline.topics import connect, missing_topics

MARIADB_MIN, MYSQL_MIN = (10, 5), (8, 0)
TRANSACTIONAL = ("InnoDB", "ROCKSDB")
# The number under which we only try whether the binlog can be read: a running capture keeps its own.
TRIAL_OFFSET = 1_000_000_000
NO_TABLE = "ottla_asks_for_the_right_to_lock"
WANTED = (
    ("log_bin", "ON", "keeps no binlog", "Start it with log_bin set, and a server_id."),
    ("binlog_format", "ROW", "does not log changes as rows", "Set binlog_format = ROW."),
    ("binlog_row_image", "FULL", "logs rows without all of their columns", "Set binlog_row_image = FULL."),
    ("log_bin_compress", "OFF", "compresses its binlog, which cannot be read", "Set log_bin_compress = OFF."),
    (
        "gtid_mode",
        "ON",
        "gives its transactions no GTIDs",
        "Set enforce_gtid_consistency = ON and gtid_mode = ON.",
    ),
    (
        "binlog_row_value_options",
        "",
        "logs only parts of changed JSON values",
        "Set binlog_row_value_options = ''.",
    ),
    (
        "log_replica_updates",
        "ON",
        "does not log what it replicates",
        "Set log_replica_updates = ON, or capture the server that it replicates.",
    ),
    (
        "binlog_order_commits",
        "ON",
        "may commit transactions in another order than it logs them",
        "Set binlog_order_commits = ON.",
    ),
)


def problems_of(capture: Capture, where: str, context: Context) -> Iterator[Problem]:
    if "://" in capture.state:
        yield remote_state_problem(capture.state, where)
        return
    try:
        with connected(capture) as connection:
            problem = server_kind_problem(query(connection, "SELECT VERSION()")[0][0], capture)
            if problem is not None:
                yield Problem(where, *problem)
                return
            variables = dict(query(connection, "SHOW GLOBAL VARIABLES"))
            tables = captured_tables(connection, capture)
            replicas = replica_ids(connection)
            check_locks(connection, tables)
    except PipelineError as error:
        yield Problem(where, error.what, error.remedy)
        return
    for what, remedy, is_warning in (
        *variable_problems(variables, capture),
        *server_id_problems(capture, int(variables["server_id"]), replicas),
        *table_problems(tables, capture),
    ):
        yield Problem(where, what, remedy, is_warning)
    if variables["log_bin"] == "ON" and variables.get("gtid_mode", "ON") == "ON":
        yield from binlog_problems(capture, where, current_place(variables))
    topics = wanted_topics(capture.topic, (capture.topic_of(table.db, table.name) for table in tables))
    yield from topic_problems(topics, where, context)


def server_kind_problem(version: str, capture: Capture) -> tuple[str, str] | None:
    is_mariadb = "mariadb" in version.lower()
    name, least = ("MariaDB", MARIADB_MIN) if is_mariadb else ("MySQL", MYSQL_MIN)
    numbers = version.removeprefix("5.5.5-").split("-")[0].split(".")
    if (int(numbers[0]), int(numbers[1])) < least:
        return (
            f"The database at {capture.address} is {name} {version}.",
            f"Use {name} {least[0]}.{least[1]} or later.",
        )
    return None


def current_place(variables: Mapping[str, str]) -> Place:
    if "gtid_binlog_pos" in variables:
        return Position.parse(variables["gtid_binlog_pos"])
    return GtidSet.parse(variables["gtid_executed"])


def variable_problems(variables: Mapping[str, str], capture: Capture) -> Iterator[tuple[str, str, bool]]:
    for name, wanted, what, remedy in WANTED:
        found = variables.get(name, wanted)
        if found.upper() != wanted:
            yield f"The database at {capture.address} {what} ({name} = {found}).", remedy, False
    if variables.get("binlog_row_metadata", "").upper() != "FULL":
        yield (
            f"The database at {capture.address} does not log the names of columns (binlog_row_metadata = "
            f"{variables.get('binlog_row_metadata')}): a change of a table's columns will stop this source.",
            "Set binlog_row_metadata = FULL.",
            True,
        )
    if variables.get("sync_binlog") != "1":
        yield (
            f"The database at {capture.address} may lose the end of its binlog when its machine fails (sync_binlog = "
            f"{variables.get('sync_binlog')}): what was captured of it would not be in the database.",
            "Set sync_binlog = 1.",
            True,
        )


def server_id_problems(
    capture: Capture, own: int, replicas: frozenset[int]
) -> Iterator[tuple[str, str, bool]]:
    if capture.server_id == own or capture.server_id in replicas:
        whose = "is the database's own" if capture.server_id == own else "is that of another replica"
        yield (
            f"The server id {capture.server_id} {whose}.",
            "Give this source a `server_id` of its own.",
            False,
        )


def table_problems(tables: list[CapturedTable], capture: Capture) -> Iterator[tuple[str, str, bool]]:
    if not tables:
        patterns = ", ".join(capture.tables)
        yield (
            f"No table at {capture.address} that the user `{capture.user}` may see matches {patterns}.",
            "Mend `tables`, or grant the user SELECT on them.",
            True,
        )
    for table in tables:
        name = f"{table.db}.{table.name}"
        if not table.key:
            yield f"{name} has no primary key: its records have no key.", "Give it one.", True
        if table.engine not in TRANSACTIONAL:
            yield (
                f"{name} is kept in {table.engine}, which has no transactions: changes during the snapshot may be in "
                "it and come again.",
                f"ALTER TABLE {name} ENGINE = InnoDB.",
                True,
            )
        for column in table.columns:
            if "COMPRESSED" in column.declared:
                yield (
                    f"Column `{column.name}` of {name} is COMPRESSED, which cannot be captured.",
                    "Change its type, or leave the table out of `tables`.",
                    False,
                )


def replica_ids(connection: Any) -> frozenset[int]:
    """Of the replicas that tell their numbers, where the user may ask for them."""
    try:
        ask = "SHOW SLAVE HOSTS" if is_mariadb(connection) else "SHOW REPLICAS"
        return frozenset(int(row[0]) for row in query(connection, ask))
    except pymysql.MySQLError:
        return frozenset()


def check_locks(connection: Any, tables: Iterable[CapturedTable]) -> None:
    """Raises where MySQL does not let the user lock tables, which its snapshot needs.

    Rights are looked at before tables are: one that is not there tells them, and locks nothing.
    """
    for db in {table.db for table in tables} if not is_mariadb(connection) else ():
        try:
            query(connection, f"LOCK TABLES {quoted(db)}.{quoted(NO_TABLE)} READ")
        except pymysql.MySQLError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise


def binlog_problems(capture: Capture, where: str, current: Place) -> Iterator[Problem]:
    """Reads the first event from where the source would go on: rights, and binlogs that are gone, show themselves."""
    offset = Checkpoint.at(str(Path(capture.state).parent)).last_offset()
    trial = Capture(**{**vars(capture), "server_id": capture.server_id + TRIAL_OFFSET})
    try:
        position = (
            place_like(current, offset["gtid"], capture.address) if offset and offset["gtid"] else current
        )
        with closing(stream(trial, position, (RotateEvent,))) as reader:
            reader.fetchone()
    except PipelineError as error:
        yield Problem(where, error.what, error.remedy)
    except pymysql.MySQLError as error:
        problem = explained(error, capture)
        yield Problem(where, problem.what, problem.remedy)
    except Lost as lost:
        yield Problem(
            where, f"The database at {capture.address} does not send its binlog: {lost}.", "See its log."
        )


def remote_state_problem(state: str, where: str) -> Problem:
    return Problem(
        where,
        f"The snapshot and the schema history cannot be kept in {state}.",
        "Set `checkpoints` to a folder of a file system that driver and executors see.",
    )


def topic_problems(wanted: Iterable[str], where: str, context: Context) -> Iterator[Problem]:
    present = connect(context.cluster).metadata().topics
    yield from missing_topics(wanted, present, context, where)


def wanted_topics(topic: str, of_tables: Iterable[str]) -> set[str]:
    """Where tables share one topic, it is wanted also while there are no tables."""
    return {*of_tables} if "{" in topic else {topic}
