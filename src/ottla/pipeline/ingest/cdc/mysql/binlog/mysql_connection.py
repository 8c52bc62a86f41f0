"""The connection over which MySQL sends its binlog, with what the library does not know of MySQL.

The library asks from a file's place: its command is replaced by one that names the set of transactions which are there
already. Compressed transactions are unpacked to the events inside them. Statements come without the settings of their
session, of which newer servers have more, and columns of the type VECTOR as BLOBs with a mark.
"""

import struct
from collections.abc import Iterator

from pyarrow import Codec

from ottla.pipeline.ingest.cdc.mysql.binlog.connection import BinlogConnection, IsCaptured, begin_of, event_at
from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import (
    CHECKSUM_BYTES,
    HEADER,
    KIND_AT,
    MARK,
    length_coded,
)
from ottla.pipeline.ingest.cdc.mysql.binlog.vectors import with_vectors_marked
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet

COM_BINLOG_DUMP_GTID = 0x1E
THROUGH_GTID = 0x04
BEGIN_OF_FILE = 4
QUERY, TRANSACTION_PAYLOAD = 2, 40
# Of a statement: session, duration, length of the database's name, error, length of the settings.
QUERY_HEAD = struct.Struct("<IIBHH")
# The fields before a compressed transaction.
FIELDS_END, PAYLOAD_SIZE, COMPRESSION, UNCOMPRESSED_SIZE = range(4)
UNCOMPRESSED = 255


class MySqlConnection(BinlogConnection):
    def follow_after(self, start: GtidSet, server_id: int, is_captured: IsCaptured) -> None:
        self.dump = dump_command(start, server_id)
        self.follow(is_captured)

    def command(self, asked: bytes) -> bytes:
        return self.dump

    def readable(self, packet: bytes) -> Iterator[bytes]:
        kind = packet[KIND_AT]
        if kind == TRANSACTION_PAYLOAD:
            for event in events_of_payload(packet, self.wants_checksums):
                yield from self.readable(event)
        elif kind == QUERY:
            yield without_settings(packet)
        else:
            yield from super().readable(packet)

    def readable_columns(self, packet: bytes, at: int) -> bytes:
        return with_vectors_marked(packet, at)


def dump_command(start: GtidSet, server_id: int) -> bytes:
    known = start.encoded()
    body = struct.pack("<BHII", COM_BINLOG_DUMP_GTID, THROUGH_GTID, server_id, 0)
    body += struct.pack("<QI", BEGIN_OF_FILE, len(known)) + known
    return struct.pack("<I", len(body)) + body


def without_settings(packet: bytes) -> bytes:
    at = len(MARK) + HEADER.size
    *head, settings_bytes = QUERY_HEAD.unpack_from(packet, at)
    rest = packet[at + QUERY_HEAD.size + settings_bytes :]
    return event_at(begin_of(packet), packet[len(MARK) : at], QUERY_HEAD.pack(*head, 0) + rest)


def events_of_payload(packet: bytes, wants_checksums: bool) -> Iterator[bytes]:
    """The events of a compressed transaction as if each had come alone, at the place of the whole."""
    begin = begin_of(packet)
    padding = bytes(CHECKSUM_BYTES if wants_checksums else 0)
    data, at = payload(packet), 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[3]
        body = data[at + HEADER.size : at + size] + padding
        yield event_at(begin, data[at : at + HEADER.size], body)
        at += size


def payload(packet: bytes) -> bytes:
    at = len(MARK) + HEADER.size
    fields = {COMPRESSION: 0, PAYLOAD_SIZE: 0, UNCOMPRESSED_SIZE: 0}
    while True:
        field, at = length_coded(packet, at)
        if field == FIELDS_END:
            break
        length, at = length_coded(packet, at)
        fields[field], _ = length_coded(packet, at)
        at += length
    data = packet[at : at + fields[PAYLOAD_SIZE]]
    if fields[COMPRESSION] == UNCOMPRESSED:
        return data
    return Codec("zstd").decompress(data, fields[UNCOMPRESSED_SIZE], asbytes=True)  # type: ignore[no-any-return]
