"""Checks before the start: asks the real server for everything that would stop its capture."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import ER
from pymysqlreplication.event import RotateEvent

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.checks import check_state_folder, check_topics, topics_of
from ottla.pipeline.ingest.cdc.mysql.binlog.reader import ConnectionLost, open_stream
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbPosition
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition, parse_position_like
from ottla.pipeline.ingest.cdc.mysql.server import connect, explain, is_mariadb, query, quote
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.mysql.tables import CapturedTable, captured_tables
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Context, Finding

_MARIADB_MIN, _MYSQL_MIN = (10, 5), (8, 0)
_TRANSACTIONAL = ("InnoDB", "ROCKSDB")
# The test connection gets a server id of its own: with the source's it would disconnect a running capture.
_TEST_ID_OFFSET = 1_000_000_000
_NO_TABLE = "ottla_asks_for_the_right_to_lock"


class _Variable(NamedTuple):
    """A variable of the server that must have the value `wanted`. A server that does not have it is fine too."""

    name: str
    wanted: str
    what: str
    remedy: str


_REQUIRED = (
    _Variable("log_bin", "ON", "has no binlog", "Start it with log_bin and server_id set."),
    _Variable("binlog_format", "ROW", "does not log changes as rows", "Set binlog_format = ROW."),
    _Variable(
        "binlog_row_image", "FULL", "logs rows without all of their columns", "Set binlog_row_image = FULL."
    ),
    _Variable(
        "log_bin_compress",
        "OFF",
        "compresses its binlog, which is not supported",
        "Set log_bin_compress = OFF.",
    ),
    _Variable(
        "gtid_mode",
        "ON",
        "gives its transactions no GTIDs",
        "Set enforce_gtid_consistency = ON and gtid_mode = ON.",
    ),
    _Variable(
        "binlog_row_value_options",
        "",
        "logs only parts of changed JSON values",
        "Set binlog_row_value_options = ''.",
    ),
    _Variable(
        "log_replica_updates",
        "ON",
        "does not log the changes that it replicates",
        "Set log_replica_updates = ON, or capture the server that it replicates.",
    ),
    _Variable(
        "binlog_order_commits",
        "ON",
        "may commit transactions in another order than it logs them",
        "Set binlog_order_commits = ON.",
    ),
)


def check_capture(capture: MySqlCapture, where: str, context: Context) -> Iterator[Finding]:
    try:
        check_state_folder(capture)
        with connect(capture) as connection:
            check_version(query(connection, "SELECT VERSION()")[0][0], capture)
            variables = dict(query(connection, "SHOW GLOBAL VARIABLES"))
            tables = captured_tables(connection, capture)
            replicas = _replica_ids(connection)
            _check_locks(connection, tables)
    except PipelineError as error:
        yield Finding(where, error.what, error.remedy)
        return
    yield from check_variables(variables, capture, where)
    yield from check_server_id(capture, int(variables["server_id"]), replicas, where)
    yield from _check_tables(tables, capture, where)
    if variables["log_bin"] == "ON" and variables.get("gtid_mode", "ON") == "ON":
        yield from _check_binlog(capture, where, _current_position(variables))
    topics = topics_of(capture.topic, (capture.topic_of(table.db, table.name) for table in tables))
    yield from check_topics(topics, where, context)


def check_version(version: str, capture: MySqlCapture) -> None:
    is_mariadb = "mariadb" in version.lower()
    name, minimum = ("MariaDB", _MARIADB_MIN) if is_mariadb else ("MySQL", _MYSQL_MIN)
    numbers = version.removeprefix("5.5.5-").split("-")[0].split(".")
    if (int(numbers[0]), int(numbers[1])) < minimum:
        raise PipelineError(
            f"The database at {capture.address} is {name} {version}.",
            f"Use {name} {minimum[0]}.{minimum[1]} or later.",
        )


def _current_position(variables: Mapping[str, str]) -> BinlogPosition:
    if "gtid_binlog_pos" in variables:
        return MariaDbPosition.parse(variables["gtid_binlog_pos"])
    return GtidSet.parse(variables["gtid_executed"])


def check_variables(variables: Mapping[str, str], capture: MySqlCapture, where: str) -> Iterator[Finding]:
    for name, wanted, what, remedy in _REQUIRED:
        found = variables.get(name, wanted)
        if found.upper() != wanted:
            yield Finding(where, f"The database at {capture.address} {what} ({name} = {found}).", remedy)
    if variables.get("binlog_row_metadata", "").upper() != "FULL":
        yield Finding(
            where,
            f"The database at {capture.address} does not log the names of columns (binlog_row_metadata = "
            f"{variables.get('binlog_row_metadata')}): a change of a table's columns will stop this source.",
            "Set binlog_row_metadata = FULL.",
            is_warning=True,
        )
    if variables.get("sync_binlog") != "1":
        yield Finding(
            where,
            f"The database at {capture.address} may lose the end of its binlog when its machine fails (sync_binlog = "
            f"{variables.get('sync_binlog')}): captured changes could then be missing in the database.",
            "Set sync_binlog = 1.",
            is_warning=True,
        )


def check_server_id(
    capture: MySqlCapture, own: int, replicas: frozenset[int], where: str
) -> Iterator[Finding]:
    if capture.server_id == own or capture.server_id in replicas:
        whose = "is the database's own" if capture.server_id == own else "is that of another replica"
        yield Finding(
            where,
            f"The server id {capture.server_id} {whose}.",
            "Give this source a `server_id` that no other replica uses.",
        )


def _check_tables(tables: list[CapturedTable], capture: MySqlCapture, where: str) -> Iterator[Finding]:
    if not tables:
        patterns = ", ".join(capture.tables)
        yield Finding(
            where,
            f"No table at {capture.address} matches {patterns}, or the user `{capture.user}` may not see it.",
            "Fix `tables`, or grant the user SELECT on them.",
            is_warning=True,
        )
    for table in tables:
        name = f"{table.db}.{table.name}"
        if not table.key:
            yield Finding(
                where,
                f"{name} has no primary key: its records have no key.",
                "Give it a primary key.",
                is_warning=True,
            )
        if table.engine not in _TRANSACTIONAL:
            yield Finding(
                where,
                f"{name} uses the engine {table.engine}, which has no transactions: a change during the snapshot may "
                "be captured twice.",
                f"ALTER TABLE {name} ENGINE = InnoDB.",
                is_warning=True,
            )
        for column in table.columns:
            if "COMPRESSED" in column.column_type:
                yield Finding(
                    where,
                    f"Column `{column.name}` of {name} is COMPRESSED, which cannot be captured.",
                    "Change its type, or leave the table out of `tables`.",
                )


def _replica_ids(connection: Any) -> frozenset[int]:
    """Server ids of the replicas that report one; empty if the user may not ask for them."""
    try:
        statement = "SHOW SLAVE HOSTS" if is_mariadb(connection) else "SHOW REPLICAS"
        return frozenset(int(row[0]) for row in query(connection, statement))
    except pymysql.MySQLError:
        return frozenset()


def _check_locks(connection: Any, tables: Iterable[CapturedTable]) -> None:
    """Raises if MySQL does not allow the user to lock tables, which its snapshot needs.

    The server checks privileges before it looks for the table. So locking a table that does not exist shows whether
    the user has them, and locks nothing.
    """
    for db in {table.db for table in tables} if not is_mariadb(connection) else ():
        try:
            query(connection, f"LOCK TABLES {quote(db)}.{quote(_NO_TABLE)} READ")
        except pymysql.MySQLError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise


def _check_binlog(capture: MySqlCapture, where: str, current: BinlogPosition) -> Iterator[Finding]:
    """Reads the first event from where the source would go on: finds missing privileges and purged binlogs."""
    offset = Checkpoint.at(str(Path(capture.state).parent)).last_offset()
    as_tester = replace(capture, server_id=capture.server_id + _TEST_ID_OFFSET)
    try:
        position = (
            parse_position_like(current, offset["gtid"], capture.address)
            if offset and offset["gtid"]
            else current
        )
        with closing(open_stream(as_tester, position, (RotateEvent,))) as stream:
            stream.fetchone()
    except PipelineError as error:
        yield Finding(where, error.what, error.remedy)
    except pymysql.MySQLError as error:
        explained = explain(error, capture)
        yield Finding(where, explained.what, explained.remedy)
    except ConnectionLost as lost:
        yield Finding(
            where, f"The database at {capture.address} does not send its binlog: {lost}.", "See its log."
        )
