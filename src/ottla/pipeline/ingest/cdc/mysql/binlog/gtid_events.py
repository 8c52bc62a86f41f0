"""The events that begin a transaction, and the GTIDs in them."""

import uuid
from typing import Any, NamedTuple

from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, NotImplementedEvent

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import Gtid
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import MySqlGtid, Source

BEGINNINGS = (MariadbGtidEvent, GtidEvent, NotImplementedEvent)
STANDALONE = 1
ANONYMOUS_GTID, GTID_TAGGED = 34, 42
HEADER_BYTES = 20
UUID_BYTES = 16


class Begun(NamedTuple):
    """`standalone`: its one statement is all of it. MySQL does not say so: there it holds until a BEGIN comes."""

    gtid: Any
    standalone: bool


def begun(event: Any, address: str) -> Begun | None:
    """None for an event that begins no transaction."""
    if isinstance(event, MariadbGtidEvent):
        return Begun(Gtid.parse(event.gtid), bool(event.flags & STANDALONE))
    if isinstance(event, GtidEvent):
        return Begun(MySqlGtid(Source(str(uuid.UUID(bytes=event.sid))), event.gno), True)
    if not isinstance(event, NotImplementedEvent):
        return None
    if event.event_type == GTID_TAGGED:
        return Begun(tagged_gtid(event.packet.packet.get_all_data()[HEADER_BYTES:]), True)
    if event.event_type == ANONYMOUS_GTID:
        raise PipelineError(
            f"The binlog of {address} holds a transaction without a GTID.",
            "Set gtid_mode = ON on the server, and remove the source's checkpoint folder to begin with a new snapshot.",
        )
    return None


def tagged_gtid(data: bytes) -> MySqlGtid:
    """Three numbers of the message, then fields after their number: flags, uuid byte by byte, number, tag."""
    at, name, number, tag = 0, b"", 0, ""
    for _ in range(3):
        _, at = variable_length(data, at)
    while not tag:
        field, at = variable_length(data, at)
        value, at = variable_length(data, at)
        if field == 1:
            octets = [value]
            for _ in range(UUID_BYTES - 1):
                octet, at = variable_length(data, at)
                octets.append(octet)
            name = bytes(octets)
        elif field == 2:
            # Signed: the sign is the lowest bit.
            number = value >> 1
        elif field == 3:
            tag, at = data[at : at + value].decode(), at + value
    return MySqlGtid(Source(str(uuid.UUID(bytes=name)), tag), number)


def variable_length(data: bytes, at: int) -> tuple[int, int]:
    """The ones at the low end of the first byte count the bytes that follow it; the bits above are the number's."""
    more = (~data[at] & (data[at] + 1)).bit_length() - 1
    end = at + 1 + more
    return int.from_bytes(data[at:end], "little") >> (more + 1), end
