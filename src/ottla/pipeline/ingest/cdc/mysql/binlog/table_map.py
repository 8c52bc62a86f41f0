"""The byte layout of a TABLE_MAP event, which comes before the rows of a table and describes its columns."""

import struct
from collections.abc import Iterator

# A packet has one byte before its event. An event's header: timestamp, type, server, size, end in the file, flags.
MARK = b"\0"
HEADER = struct.Struct("<IBIIIH")
TYPE_AT, BODY_AT = 5, len(MARK) + HEADER.size
_HEAD_BYTES = 8
CHECKSUM_BYTES = 4
SET_LABELS, ENUM_LABELS = 5, 6


def table_names(packet: bytes) -> tuple[str, str, int]:
    """Database, table, and where the columns begin."""
    db, at = _read_name(packet, BODY_AT + _HEAD_BYTES)
    table, at = _read_name(packet, at)
    return db, table, at


def metadata_at(packet: bytes, columns_at: int) -> int:
    """Where the optional metadata begins: after the columns' types, the types' details and the NULL bitmap."""
    count, at = read_length(packet, columns_at)
    detail_bytes, at = read_length(packet, at + count)
    return at + detail_bytes + (count + 7) // 8


def metadata_fields(packet: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """The type of each field, where it begins, where its value begins, and where the value ends."""
    while at < len(packet) - CHECKSUM_BYTES:
        length, begin = read_length(packet, at + 1)
        yield packet[at], at, begin, begin + length
        at = begin + length


def read_labels(packet: bytes, wanted: int) -> list[list[bytes]]:
    """The labels of each ENUM or SET column, in the column's character set."""
    found: list[list[bytes]] = []
    for field, _, at, end in metadata_fields(packet, metadata_at(packet, table_names(packet)[2])):
        while field == wanted and at < end:
            count, at = read_length(packet, at)
            labels = []
            for _ in range(count):
                length, begin = read_length(packet, at)
                at = begin + length
                labels.append(packet[begin:at])
            found.append(labels)
    return found


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """A length of one byte, the name, and a zero."""
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end + 1


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer: up to 250 the byte itself; above, the byte says how many bytes follow."""
    first = data[at]
    if first < 251:
        return first, at + 1
    end = at + 1 + {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : end], "little"), end
