"""The events that begin a transaction, and the GTIDs in them."""

import uuid
from typing import Any, NamedTuple

from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, NotImplementedEvent

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbGtid
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSource, MySqlGtid

GTID_EVENTS = (MariadbGtidEvent, GtidEvent, NotImplementedEvent)
_STANDALONE = 1
_ANONYMOUS_GTID, _GTID_TAGGED = 34, 42
_HEADER_BYTES = 20
_UUID_BYTES = 16
# The fields of a tagged GTID event.
_UUID, _NUMBER, _TAG = 1, 2, 3


class TransactionStart(NamedTuple):
    """`is_standalone`: the transaction is one statement, without BEGIN and COMMIT.

    MySQL's events do not say so: there it is assumed until a BEGIN comes.
    """

    gtid: Any
    is_standalone: bool


def transaction_start(event: Any, address: str) -> TransactionStart | None:
    """None for an event that begins no transaction."""
    if isinstance(event, MariadbGtidEvent):
        return TransactionStart(MariaDbGtid.parse(event.gtid), bool(event.flags & _STANDALONE))
    if isinstance(event, GtidEvent):
        return TransactionStart(MySqlGtid(GtidSource(str(uuid.UUID(bytes=event.sid))), event.gno), True)
    if not isinstance(event, NotImplementedEvent):
        return None
    if event.event_type == _GTID_TAGGED:
        return TransactionStart(decode_tagged_gtid(event.packet.packet.get_all_data()[_HEADER_BYTES:]), True)
    if event.event_type == _ANONYMOUS_GTID:
        raise PipelineError(
            f"The binlog of {address} has a transaction without a GTID.",
            "Set gtid_mode = ON on the server, and remove the source's checkpoint folder to start over with a new "
            "snapshot.",
        )
    return None


def decode_tagged_gtid(data: bytes) -> MySqlGtid:
    """Three numbers about the message, then fields after their ids: flags, uuid byte by byte, number, tag."""
    at, source_uuid, number, tag = 0, b"", 0, ""
    for _ in range(3):
        _, at = _read_varint(data, at)
    while not tag:
        field, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if field == _UUID:
            octets = [value]
            for _ in range(_UUID_BYTES - 1):
                octet, at = _read_varint(data, at)
                octets.append(octet)
            source_uuid = bytes(octets)
        elif field == _NUMBER:
            # Signed: the lowest bit is the sign.
            number = value >> 1
        elif field == _TAG:
            tag, at = data[at : at + value].decode(), at + value
    return MySqlGtid(GtidSource(str(uuid.UUID(bytes=source_uuid)), tag), number)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The trailing ones of the first byte count the bytes that follow it; the bits above them are the number's."""
    more = (~data[at] & (data[at] + 1)).bit_length() - 1
    end = at + 1 + more
    return int.from_bytes(data[at:end], "little") >> (more + 1), end
