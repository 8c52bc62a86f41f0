"""The connection over which a server sends its binlog, with events made readable for the library.

The library assumes that all binlog files have checksums, or that none has, as the server is configured now: events
of other files are changed to match. TABLE_MAP events of tables that are not captured lose their columns, so a type that
the library cannot read does no harm there.
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
    MARK,
    TYPE_AT,
    table_names,
)

_COM_BINLOG_DUMP = 0x12
_FORMAT_DESCRIPTION, _TABLE_MAP = 15, 19

IsCaptured = Callable[[str, str], bool]


class BinlogConnection(pymysql.Connection):  # type: ignore[misc]
    """After `follow` and the library's command, its packets are events."""

    is_captured: IsCaptured | None = None
    is_following = False

    def follow(self, is_captured: IsCaptured) -> None:
        with self.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.binlog_checksum")
            self.wants_checksums = cursor.fetchone()[0] != "NONE"
            # Without this the server does not send files that have checksums. Events before the first file have
            # checksums too then.
            cursor.execute("SET @master_binlog_checksum = 'CRC32'")
        self.has_checksums = True
        self.pending: deque[bytes] = deque()
        self.is_captured = is_captured

    def _write_bytes(self, data: bytes) -> None:
        if self.is_captured is not None and data[4] == _COM_BINLOG_DUMP:
            self.is_following = True
            data = self.dump_command(data)
        super()._write_bytes(data)

    def dump_command(self, command: bytes) -> bytes:
        """The command to send in place of the library's."""
        return command

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        if not self.is_following:
            return super()._read_packet(packet_type)
        if not self.pending:
            packet = super()._read_packet(packet_type)
            if not packet.is_ok_packet():
                return packet
            self.pending.extend(self.readable_events(self._match_checksum(packet.get_all_data())))
        return packet_type(self.pending.popleft(), self.encoding)

    def _match_checksum(self, packet: bytes) -> bytes:
        """With or without a checksum, as the library assumes.

        The first event of a file has a checksum, and says whether the other events do.
        """
        is_first = packet[TYPE_AT] == _FORMAT_DESCRIPTION
        had = self.has_checksums or is_first
        if is_first:
            self.has_checksums = packet[-CHECKSUM_BYTES - 1] != 0
        if had == self.wants_checksums:
            return packet
        body = packet[BODY_AT:-CHECKSUM_BYTES] if had else packet[BODY_AT:] + bytes(CHECKSUM_BYTES)
        return event_packet(start_of(packet), packet[len(MARK) : BODY_AT], body)

    def readable_events(self, packet: bytes) -> Iterator[bytes]:
        """The events of a packet, in a form that the library reads."""
        yield self._readable_table_map(packet) if packet[TYPE_AT] == _TABLE_MAP else packet

    def _readable_table_map(self, packet: bytes) -> bytes:
        assert self.is_captured is not None
        db, table, at = table_names(packet)
        if not self.is_captured(db, table):
            return packet[:at] + bytes(2 + CHECKSUM_BYTES)
        # The library drops the last four bytes as a checksum even if there is none: the key would be lost.
        checksum = b"" if self.wants_checksums else bytes(CHECKSUM_BYTES)
        return self.readable_columns(packet + checksum, at)

    def readable_columns(self, packet: bytes, at: int) -> bytes:
        """`at` is where the columns begin."""
        return packet


def start_of(packet: bytes) -> int:
    """Where an event begins in its file. Positions have four bytes: they wrap around in larger files."""
    _, _, _, size, end, _ = HEADER.unpack_from(packet, len(MARK))
    return int((end - size) % 2**32)


def event_packet(start: int, header: bytes, body: bytes) -> bytes:
    """A packet with `body` under this header, its size and its end in the file adjusted."""
    timestamp, event_type, server, _, _, flags = HEADER.unpack(header)
    size = HEADER.size + len(body)
    return MARK + HEADER.pack(timestamp, event_type, server, size, (start + size) % 2**32, flags) + body
