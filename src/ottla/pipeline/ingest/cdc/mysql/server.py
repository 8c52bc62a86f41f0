"""The connection to a captured MariaDB or MySQL server, its position in the binlog, and its errors."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER
from pymysql.converters import conversions

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbPosition
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture

_CONNECT_TIMEOUT_S = 10
_SHUTDOWN, _TOO_MANY_CONNECTIONS = 1053, 1040
_UNREACHABLE = frozenset(
    {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, _SHUTDOWN, _TOO_MANY_CONNECTIONS}
)
_MASTER_FATAL = 1236
_NO_PRIVILEGE = frozenset(
    {
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
    }
)
# Values stay as the server writes them: only the arguments of our statements are converted.
_ARGUMENTS_ONLY = {kind: encode for kind, encode in conversions.items() if not isinstance(kind, int)}


def connection_settings(capture: MySqlCapture) -> dict[str, Any]:
    return {
        "host": capture.host,
        "port": capture.port,
        "user": capture.user,
        "password": capture.password,
        "charset": "utf8mb4",
        "connect_timeout": _CONNECT_TIMEOUT_S,
    }


@contextmanager
def connect(capture: MySqlCapture, **more: Any) -> Iterator[Any]:
    """A connection. Raises PipelineError for errors of the server, in the body of the `with` too."""
    try:
        settings = {**connection_settings(capture), "autocommit": True, "conv": _ARGUMENTS_ONLY, **more}
        with closing(pymysql.connect(**settings)) as connection:
            yield connection
    except pymysql.MySQLError as error:
        raise explain(error, capture) from error


def query(connection: Any, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)
        return list(cursor.fetchall())


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def is_mariadb(connection: Any) -> bool:
    return "mariadb" in connection.get_server_info().lower()


def fetch_position(capture: MySqlCapture) -> BinlogPosition:
    """The end of the server's binlog."""
    with connect(capture) as connection:
        return position_of(connection, capture)


def position_of(connection: Any, capture: MySqlCapture) -> BinlogPosition:
    if is_mariadb(connection):
        return MariaDbPosition.parse(query(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
    executed, mode, has_binlog = query(
        connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode, @@GLOBAL.log_bin"
    )[0]
    if has_binlog != "1":
        raise _no_binlog(capture)
    if mode != "ON":
        # Transactions would have no GTID, and the set would not change.
        raise PipelineError(
            f"The database at {capture.address} gives its transactions no GTIDs (gtid_mode = {mode}).",
            "Set enforce_gtid_consistency = ON and gtid_mode = ON.",
        )
    return GtidSet.parse(executed)


def is_unreachable(error: pymysql.MySQLError) -> bool:
    return bool(error.args) and error.args[0] in _UNREACHABLE


def explain(error: pymysql.MySQLError, capture: MySqlCapture) -> PipelineError:
    """What happened and what to do, from the server's error code."""
    code, message = (error.args[0], str(error.args[-1])) if error.args else (0, str(error))
    database = f"The database at {capture.address}"
    if code in _UNREACHABLE:
        return RetriableError(
            f"{database} cannot be reached: {message}.", "Start it, or fix `host` and `port`."
        )
    if code == ER.ACCESS_DENIED_ERROR:
        return PipelineError(
            f"{database} does not accept the user `{capture.user}` with this password.",
            "Fix `user` and `password`.",
        )
    if code in _NO_PRIVILEGE:
        return PipelineError(
            f"{database} denies access to the user `{capture.user}`: {message}.",
            f"Grant what is missing: GRANT SELECT, REPLICATION SLAVE ON *.* TO '{capture.user}'@'%', and LOCK TABLES "
            "with MySQL.",
        )
    if code == ER.NO_BINARY_LOGGING:
        return _no_binlog(capture)
    if code == ER.LOCK_WAIT_TIMEOUT:
        return RetriableError(
            f"{database} has long transactions that write to captured tables: the snapshot could not begin.",
            "End them, or start when there are fewer writes.",
        )
    if code == _MASTER_FATAL:
        return binlog_error(message, database)
    return PipelineError(f"{database} reports: {message} (error {code}).", "Fix the cause and start again.")


def _no_binlog(capture: MySqlCapture) -> PipelineError:
    return PipelineError(
        f"The database at {capture.address} has no binlog.", "Start it with log_bin and server_id set."
    )


def binlog_error(message: str, database: str) -> PipelineError:
    """The server's error 1236: only its message tells the causes apart."""
    if "same server_" in message or "same server-id" in message:
        return PipelineError(
            f"{database} sends its binlog to another replica with the same server id.",
            "Give this source a `server_id` that no replica and no other pipeline uses.",
        )
    if "GTID" in message or "purged" in message or "Could not find" in message:
        return PipelineError(
            f"{database} no longer has the changes from where this source stopped: {message}.",
            "Its binlogs were purged or reset. Remove the source's checkpoint folder to start over with a new "
            "snapshot, and let the server keep its binlogs for longer (binlog_expire_logs_seconds).",
        )
    return PipelineError(f"{database} does not send its binlog: {message}.", "Fix the cause and start again.")
