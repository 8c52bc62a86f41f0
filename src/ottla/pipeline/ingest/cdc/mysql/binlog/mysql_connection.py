"""The connection over which MySQL sends its binlog, with features of MySQL that the library does not know.

- The library asks for a position in a file: its command is replaced by one with the set of GTIDs that were read.
- Compressed transactions are unpacked into their events.
- Statements come without the session's settings, of which newer servers have more than the library reads.
- Columns of the type VECTOR become BLOBs with a mark.
"""

import struct
from collections.abc import Iterator

from pyarrow import Codec

from ottla.pipeline.ingest.cdc.mysql.binlog.connection import (
    BinlogConnection,
    IsCaptured,
    event_packet,
    start_of,
)
from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import (
    BODY_AT,
    CHECKSUM_BYTES,
    HEADER,
    MARK,
    TYPE_AT,
    read_length,
)
from ottla.pipeline.ingest.cdc.mysql.binlog.vectors import mark_vectors
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet

_COM_BINLOG_DUMP_GTID = 0x1E
_THROUGH_GTID = 0x04
_START_OF_FILE = 4
_QUERY, _TRANSACTION_PAYLOAD = 2, 40
# Of a QUERY event: session, duration, length of the database's name, error, length of the settings.
_QUERY_HEAD = struct.Struct("<IIBHH")
# The fields before a compressed transaction.
_FIELDS_END, _PAYLOAD_SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = range(4)
_UNCOMPRESSED = 255


class MySqlConnection(BinlogConnection):
    def follow_after(self, start: GtidSet, server_id: int, is_captured: IsCaptured) -> None:
        self.dump = _dump_gtid_command(start, server_id)
        self.follow(is_captured)

    def dump_command(self, command: bytes) -> bytes:
        return self.dump

    def readable_events(self, packet: bytes) -> Iterator[bytes]:
        event_type = packet[TYPE_AT]
        if event_type == _TRANSACTION_PAYLOAD:
            for event in _unpack_transaction(packet, self.wants_checksums):
                yield from self.readable_events(event)
        elif event_type == _QUERY:
            yield _without_settings(packet)
        else:
            yield from super().readable_events(packet)

    def readable_columns(self, packet: bytes, at: int) -> bytes:
        return mark_vectors(packet, at)


def _dump_gtid_command(start: GtidSet, server_id: int) -> bytes:
    known = start.encode()
    body = struct.pack("<BHII", _COM_BINLOG_DUMP_GTID, _THROUGH_GTID, server_id, 0)
    body += struct.pack("<QI", _START_OF_FILE, len(known)) + known
    return struct.pack("<I", len(body)) + body


def _without_settings(packet: bytes) -> bytes:
    *head, settings_bytes = _QUERY_HEAD.unpack_from(packet, BODY_AT)
    rest = packet[BODY_AT + _QUERY_HEAD.size + settings_bytes :]
    return event_packet(start_of(packet), packet[len(MARK) : BODY_AT], _QUERY_HEAD.pack(*head, 0) + rest)


def _unpack_transaction(packet: bytes, wants_checksums: bool) -> Iterator[bytes]:
    """The events of a compressed transaction, as if each had come alone at the position of the whole."""
    start = start_of(packet)
    checksum = bytes(CHECKSUM_BYTES if wants_checksums else 0)
    data, at = _payload(packet), 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[3]
        body = data[at + HEADER.size : at + size] + checksum
        yield event_packet(start, data[at : at + HEADER.size], body)
        at += size


def _payload(packet: bytes) -> bytes:
    at = BODY_AT
    fields = {_COMPRESSION: 0, _PAYLOAD_SIZE: 0, _UNCOMPRESSED_SIZE: 0}
    while True:
        field, at = read_length(packet, at)
        if field == _FIELDS_END:
            break
        length, at = read_length(packet, at)
        fields[field], _ = read_length(packet, at)
        at += length
    data = packet[at : at + fields[_PAYLOAD_SIZE]]
    if fields[_COMPRESSION] == _UNCOMPRESSED:
        return data
    return Codec("zstd").decompress(data, fields[_UNCOMPRESSED_SIZE], asbytes=True)  # type: ignore[no-any-return]
