"""The connection to the captured server, what it is asked for its place in the binlog, and its faults as sentences."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER
from pymysql.converters import conversions

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import Position
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.mysql.positions import Place
from ottla.pipeline.ingest.cdc.mysql.settings import Capture

CONNECT_TIMEOUT_S = 10
SHUTDOWN, TOO_MANY_CONNECTIONS = 1053, 1040
AWAY = frozenset(
    {CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, SHUTDOWN, TOO_MANY_CONNECTIONS}
)
MASTER_FATAL = 1236
NO_PRIVILEGE = frozenset(
    {
        ER.SPECIFIC_ACCESS_DENIED_ERROR,
        ER.TABLEACCESS_DENIED_ERROR,
        ER.DBACCESS_DENIED_ERROR,
        ER.COLUMNACCESS_DENIED_ERROR,
    }
)
# Values come as the server writes them; only what we send is converted.
AS_WRITTEN = {kind: encode for kind, encode in conversions.items() if not isinstance(kind, int)}


def connection_settings(capture: Capture) -> dict[str, Any]:
    return {
        "host": capture.host,
        "port": capture.port,
        "user": capture.user,
        "password": capture.password,
        "charset": "utf8mb4",
        "connect_timeout": CONNECT_TIMEOUT_S,
    }


@contextmanager
def connected(capture: Capture, **more: Any) -> Iterator[Any]:
    """A connection; faults of it, and of what is done with it, are raised as sentences."""
    try:
        settings = {**connection_settings(capture), "autocommit": True, "conv": AS_WRITTEN, **more}
        with closing(pymysql.connect(**settings)) as connection:
            yield connection
    except pymysql.MySQLError as error:
        raise explained(error, capture) from error


def query(connection: Any, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments or None)
        return list(cursor.fetchall())


def is_mariadb(connection: Any) -> bool:
    return "mariadb" in connection.get_server_info().lower()


def current_position(capture: Capture) -> Place:
    """Behind the last transaction of the server's binlog."""
    with connected(capture) as connection:
        return position_of(connection, capture)


def position_of(connection: Any, capture: Capture) -> Place:
    if is_mariadb(connection):
        return Position.parse(query(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
    executed, mode, has_binlog = query(
        connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode, @@GLOBAL.log_bin"
    )[0]
    if has_binlog != "1":
        raise no_binlog(capture)
    if mode != "ON":
        # Transactions would come without a number, and the set would stand still.
        raise PipelineError(
            f"The database at {capture.address} gives its transactions no GTIDs (gtid_mode = {mode}).",
            "Set enforce_gtid_consistency = ON and gtid_mode = ON.",
        )
    return GtidSet.parse(executed)


def is_away(error: pymysql.MySQLError) -> bool:
    return bool(error.args) and error.args[0] in AWAY


def explained(error: pymysql.MySQLError, capture: Capture) -> PipelineError:
    code, said = (error.args[0], str(error.args[-1])) if error.args else (0, str(error))
    where = f"The database at {capture.address}"
    if code in AWAY:
        return PassingError(f"{where} is away: {said}.", "Start it, or mend `host` and `port`.")
    if code == ER.ACCESS_DENIED_ERROR:
        return PipelineError(
            f"{where} does not accept the user `{capture.user}` with this password.",
            "Mend `user` and `password`.",
        )
    if code in NO_PRIVILEGE:
        return PipelineError(
            f"{where} refuses the user `{capture.user}`: {said}.",
            f"Grant what is missing: GRANT SELECT, REPLICATION SLAVE ON *.* TO '{capture.user}'@'%', and LOCK TABLES "
            "with MySQL.",
        )
    if code == ER.NO_BINARY_LOGGING:
        return no_binlog(capture)
    if code == ER.LOCK_WAIT_TIMEOUT:
        return PassingError(
            f"{where} has transactions that write to captured tables for long: the snapshot could not begin.",
            "End them, or start at a quieter time.",
        )
    if code == MASTER_FATAL:
        return binlog_refused(said, where)
    return PipelineError(f"{where} says: {said} (error {code}).", "Mend the cause and start again.")


def no_binlog(capture: Capture) -> PipelineError:
    return PipelineError(
        f"The database at {capture.address} keeps no binlog.", "Start it with log_bin set, and a server_id."
    )


def binlog_refused(said: str, where: str) -> PipelineError:
    if "same server_" in said or "same server-id" in said:
        return PipelineError(
            f"{where} was asked for its binlog by another replica with the same server id.",
            "Give this source a `server_id` that no replica and no other pipeline uses.",
        )
    if "GTID" in said or "purged" in said or "Could not find" in said:
        return PipelineError(
            f"{where} no longer has the changes from where this source stopped: {said}.",
            "Its binlogs were purged or reset. Remove the source's checkpoint folder to begin with a new snapshot, "
            "and let the server keep its binlogs for longer (binlog_expire_logs_seconds).",
        )
    return PipelineError(f"{where} does not send its binlog: {said}.", "Mend the cause and start again.")
