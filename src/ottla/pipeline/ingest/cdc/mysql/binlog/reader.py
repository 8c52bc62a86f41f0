"""Reading the binlog from one position to another, over lost connections and restarts of the server.

The library connects again by itself and would begin from the start: its second connection is refused here, and we
connect again behind the last complete transaction, leaving out what an unfinished one has given already.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import HeartbeatLogEvent

from ottla.pipeline.errors import PassingError
from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.mysql.binlog.connection import BinlogConnection
from ottla.pipeline.ingest.cdc.mysql.binlog.decoder import EVENTS, Transcript
from ottla.pipeline.ingest.cdc.mysql.binlog.gtid_events import BEGINNINGS, begun
from ottla.pipeline.ingest.cdc.mysql.binlog.mysql_connection import MySqlConnection
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet
from ottla.pipeline.ingest.cdc.mysql.positions import Place
from ottla.pipeline.ingest.cdc.mysql.schema_history import SchemaHistory
from ottla.pipeline.ingest.cdc.mysql.server import connection_settings, explained, is_away
from ottla.pipeline.ingest.cdc.mysql.settings import Capture
from ottla.pipeline.ingest.cdc.retry import RETRY_PAUSE_S

HEARTBEAT_S = 5
READ_TIMEOUT_S = 3 * HEARTBEAT_S


class Lost(Exception):
    """The connection ended, and `why`."""


def stream(capture: Capture, position: Place, events: tuple[type, ...]) -> BinLogStreamReader:
    """Waits for more at the end of the binlog; the server's heartbeats tell that it is still there."""
    connections = 0

    def connect_once(**settings: Any) -> Any:
        nonlocal connections
        database = settings.pop("db", None)
        is_stream = database is None
        connections += is_stream
        if is_stream and connections > 1:
            raise Lost("the connection was cut off")
        if not is_stream:
            return pymysql.connect(**settings, database=database)
        if isinstance(position, GtidSet):
            following = MySqlConnection(**settings)
            following.follow_after(position, capture.server_id, capture.captures)
            return following
        connection = BinlogConnection(**settings)
        connection.follow(capture.captures)
        return connection

    return BinLogStreamReader(
        **asked_from(position),
        connection_settings={**connection_settings(capture), "read_timeout": READ_TIMEOUT_S},
        server_id=capture.server_id,
        blocking=True,
        only_events=list(events),
        filter_non_implemented_events=False,
        slave_heartbeat=HEARTBEAT_S,
        enable_logging=False,
        pymysql_wrapper=connect_once,
    )


def asked_from(position: Place) -> dict[str, Any]:
    """Of MySQL the library asks for a file's beginning, which the connection replaces by the set of transactions."""
    if isinstance(position, GtidSet):
        return {"log_file": "", "log_pos": 0}
    return {"is_mariadb": True, "auto_position": str(position)}


def events_from(capture: Capture, position: Place, kinds: tuple[type, ...]) -> Iterator[tuple[Any, str]]:
    """Events with the name of their file, until the connection is lost or the caller has enough."""
    with closing(stream(capture, position, kinds)) as reader:
        while True:
            try:
                event = reader.fetchone()
            except pymysql.MySQLError as error:
                if is_away(error):
                    raise Lost(str(error.args[-1])) from error
                raise explained(error, capture) from error
            except OSError as error:
                raise Lost(str(error)) from error
            if event is None:
                raise Lost("the server ended the stream")
            yield event, reader.log_file or ""


def read_changes(capture: Capture, start: Place, end: Place) -> Iterator[Record]:
    """The records of all transactions after `start` up to `end`, each once and in the order of the binlog."""
    transcript = Transcript(capture, SchemaHistory(capture.schema_folder), start, end)
    patience = Patience(capture)
    while not transcript.is_complete:
        try:
            for event, file in events_from(capture, transcript.position, EVENTS):
                if not isinstance(event, HeartbeatLogEvent):
                    patience.renew()
                yield from transcript.take(event, file)
                if transcript.is_complete:
                    return
                patience.check("sends nothing more of its binlog")
        except Lost as lost:
            patience.check(f"was lost while its binlog was read: {lost}")
            transcript.reconnected()
            time.sleep(RETRY_PAUSE_S)


def position_after(capture: Capture, start: Place, end: Place, transactions: int) -> Place:
    """The position so many transactions behind `start`, or `end` if it comes before."""
    position, seen = start, 0
    patience = Patience(capture)
    while True:
        try:
            for event, _ in events_from(capture, position, (*BEGINNINGS, HeartbeatLogEvent)):
                beginning = begun(event, capture.address)
                if beginning is not None:
                    patience.renew()
                    gtid = beginning.gtid
                    if not end.includes(gtid) or position.includes(gtid):
                        continue
                    position, seen = position.after(gtid), seen + 1
                if seen >= transactions or position.reaches(end):
                    return position
                patience.check("sends nothing more of its binlog")
        except Lost as lost:
            patience.check(f"was lost while its binlog was read: {lost}")
            time.sleep(RETRY_PAUSE_S)


class Patience:
    """How long nothing may come before we give up."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.renew()

    def renew(self) -> None:
        self.until = time.monotonic() + self.capture.retry_s

    def check(self, what: str) -> None:
        if time.monotonic() > self.until:
            raise PassingError(
                f"The database at {self.capture.address} {what}.",
                "Start it, or see whether another replica uses this source's `server_id` "
                f"({self.capture.server_id}): then give it another one.",
            )
