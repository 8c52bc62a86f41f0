"""The connection over which a server sends its binlog, with events made readable before the library sees them.

The library thinks that all files of the binlog have checksums, or none, as the server is set now: those that are
different are made so. Tables that are not captured are announced without their columns: a type that cannot be read does
no harm there.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
from pymysql.protocol import MysqlPacket

from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import (
    BODY_AT,
    CHECKSUM_BYTES,
    HEADER,
    KIND_AT,
    MARK,
    names,
)

COM_BINLOG_DUMP = 0x12
FORMAT_DESCRIPTION, TABLE_MAP = 15, 19

IsCaptured = Callable[[str, str], bool]


class BinlogConnection(pymysql.Connection):  # type: ignore[misc]
    """After `follow` and the library's command, its packets are events."""

    is_captured: IsCaptured | None = None
    is_following = False

    def follow(self, is_captured: IsCaptured) -> None:
        with self.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.binlog_checksum")
            self.wants_checksums = cursor.fetchone()[0] != "NONE"
            # Else files that have them are not sent. What comes before the first file is sent with them, too.
            cursor.execute("SET @master_binlog_checksum = 'CRC32'")
        self.has_checksums = True
        self.waiting: deque[bytes] = deque()
        self.is_captured = is_captured

    def _write_bytes(self, data: bytes) -> None:
        if self.is_captured is not None and data[4] == COM_BINLOG_DUMP:
            self.is_following = True
            data = self.command(data)
        super()._write_bytes(data)

    def command(self, asked: bytes) -> bytes:
        return asked

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if not self.is_following:
            return super()._read_packet(packet_type)
        if not self.waiting:
            packet = super()._read_packet(packet_type)
            if not packet.is_ok_packet():
                return packet
            self.waiting.extend(self.readable(self.as_wanted(packet.get_all_data())))
        return packet_type(self.waiting.popleft(), self.encoding)

    def as_wanted(self, packet: bytes) -> bytes:
        """With a checksum or without one. The first event of a file has one, and says whether the others do."""
        is_first = packet[KIND_AT] == FORMAT_DESCRIPTION
        had = self.has_checksums or is_first
        if is_first:
            self.has_checksums = packet[-CHECKSUM_BYTES - 1] != 0
        if had == self.wants_checksums:
            return packet
        body = packet[BODY_AT:-CHECKSUM_BYTES] if had else packet[BODY_AT:] + bytes(CHECKSUM_BYTES)
        return event_at(begin_of(packet), packet[len(MARK) : BODY_AT], body)

    def readable(self, packet: bytes) -> Iterator[bytes]:
        yield self.readable_table(packet) if packet[KIND_AT] == TABLE_MAP else packet

    def readable_table(self, packet: bytes) -> bytes:
        assert self.is_captured is not None
        db, table, at = names(packet)
        if not self.is_captured(db, table):
            return packet[:at] + bytes(2 + CHECKSUM_BYTES)
        # The library takes the last four bytes for a checksum, also where there is none: the key would be lost.
        checksum = b"" if self.wants_checksums else bytes(CHECKSUM_BYTES)
        return self.readable_columns(packet + checksum, at)

    def readable_columns(self, packet: bytes, at: int) -> bytes:
        """`at` is where the columns begin."""
        return packet


def begin_of(packet: bytes) -> int:
    """Places are kept in four bytes: they turn over in files that are larger."""
    _, _, _, size, end, _ = HEADER.unpack_from(packet, len(MARK))
    return int((end - size) % 2**32)


def event_at(begin: int, header: bytes, body: bytes) -> bytes:
    timestamp, kind, server, _, _, flags = HEADER.unpack(header)
    size = HEADER.size + len(body)
    return MARK + HEADER.pack(timestamp, kind, server, size, (begin + size) % 2**32, flags) + body
