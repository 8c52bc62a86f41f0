"""Reads the binlog from one position to another, across lost connections and restarts of the server.

The library reconnects by itself and would then begin at the start again. So its second connection is rejected here, and
we reconnect behind the last complete transaction and skip the records of the incomplete one that were given already.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import HeartbeatLogEvent

from ottla.pipeline.errors import RetriableError
from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.mysql.binlog.connection import BinlogConnection
from ottla.pipeline.ingest.cdc.mysql.binlog.decoder import EVENTS, BinlogDecoder
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import GTID_EVENTS, transaction_start
from ottla.pipeline.ingest.cdc.mysql.binlog.mysql_connection import MySqlConnection
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory
from ottla.pipeline.ingest.cdc.mysql.server import connection_settings, explain, is_unreachable
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.retry import RETRY_PAUSE_S

_HEARTBEAT_S = 5
_READ_TIMEOUT_S = 3 * _HEARTBEAT_S


class ConnectionLost(Exception):
    """The connection ended; the argument says why."""


def open_stream(
    capture: MySqlCapture, position: BinlogPosition, events: tuple[type, ...]
) -> BinLogStreamReader:
    """Waits for more events at the end of the binlog; the server's heartbeats show that it is still there."""
    streams = 0

    def connect_once(**settings: Any) -> Any:
        nonlocal streams
        # The library's control connection names a database, its binlog connection does not.
        database = settings.pop("db", None)
        if database is not None:
            return pymysql.connect(**settings, database=database)
        streams += 1
        if streams > 1:
            raise ConnectionLost("the connection was closed")
        if isinstance(position, GtidSet):
            following = MySqlConnection(**settings)
            following.follow_after(position, capture.server_id, capture.captures)
            return following
        connection = BinlogConnection(**settings)
        connection.follow(capture.captures)
        return connection

    return BinLogStreamReader(
        **_start_arguments(position),
        connection_settings={**connection_settings(capture), "read_timeout": _READ_TIMEOUT_S},
        server_id=capture.server_id,
        blocking=True,
        only_events=list(events),
        filter_non_implemented_events=False,
        slave_heartbeat=_HEARTBEAT_S,
        enable_logging=False,
        pymysql_wrapper=connect_once,
    )


def _start_arguments(position: BinlogPosition) -> dict[str, Any]:
    """For MySQL the library asks for the start of a file; `MySqlConnection` replaces that by the set of GTIDs."""
    if isinstance(position, GtidSet):
        return {"log_file": "", "log_pos": 0}
    return {"is_mariadb": True, "auto_position": str(position)}


def _read_events(
    capture: MySqlCapture, position: BinlogPosition, events: tuple[type, ...]
) -> Iterator[tuple[Any, str]]:
    """Events with the name of their binlog file. Raises ConnectionLost when the connection ends."""
    with closing(open_stream(capture, position, events)) as stream:
        while True:
            try:
                event = stream.fetchone()
            except pymysql.MySQLError as error:
                if is_unreachable(error):
                    raise ConnectionLost(str(error.args[-1])) from error
                raise explain(error, capture) from error
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            if event is None:
                raise ConnectionLost("the server ended the stream")
            yield event, stream.log_file or ""


def read_changes(capture: MySqlCapture, start: BinlogPosition, end: BinlogPosition) -> Iterator[Record]:
    """The records of all transactions after `start` up to `end`, each once and in the order of the binlog."""
    decoder = BinlogDecoder(capture, SchemaHistory(capture.schema_folder), start, end)
    timeout = _ProgressTimeout(capture)
    while not decoder.is_complete:
        try:
            for event, file in _read_events(capture, decoder.position, EVENTS):
                if not isinstance(event, HeartbeatLogEvent):
                    timeout.restart()
                yield from decoder.decode(event, file)
                if decoder.is_complete:
                    return
                timeout.check("sends nothing more of its binlog")
        except ConnectionLost as lost:
            timeout.check(f"stopped sending its binlog: {lost}")
            decoder.reconnected()
            time.sleep(RETRY_PAUSE_S)


def position_after(
    capture: MySqlCapture, start: BinlogPosition, end: BinlogPosition, transactions: int
) -> BinlogPosition:
    """The position `transactions` transactions after `start`, but not after `end`."""
    position, seen = start, 0
    timeout = _ProgressTimeout(capture)
    while True:
        try:
            for event, _ in _read_events(capture, position, (*GTID_EVENTS, HeartbeatLogEvent)):
                begun = transaction_start(event, capture.address)
                if begun is not None:
                    timeout.restart()
                    gtid = begun.gtid
                    if not end.includes(gtid) or position.includes(gtid):
                        continue
                    position, seen = position.after(gtid), seen + 1
                if seen >= transactions or position.reaches(end):
                    return position
                timeout.check("sends nothing more of its binlog")
        except ConnectionLost as lost:
            timeout.check(f"stopped sending its binlog: {lost}")
            time.sleep(RETRY_PAUSE_S)


class _ProgressTimeout:
    """Gives up when no event has come for `retry_s`."""

    def __init__(self, capture: MySqlCapture) -> None:
        self.capture = capture
        self.restart()

    def restart(self) -> None:
        self.give_up = time.monotonic() + self.capture.retry_s

    def check(self, what: str) -> None:
        if time.monotonic() > self.give_up:
            raise RetriableError(
                f"The database at {self.capture.address} {what}.",
                "Start it, or check whether another replica uses this source's `server_id` "
                f"({self.capture.server_id}): then set another one.",
            )
