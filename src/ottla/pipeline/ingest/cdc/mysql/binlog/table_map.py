"""The layout of the event that announces a table: its names, its columns, and fields that describe them."""

import struct
from collections.abc import Iterator

# Before an event a packet has one byte that says so; then timestamp, type, server, size, end in the file, flags.
MARK = b"\0"
HEADER = struct.Struct("<IBIIIH")
KIND_AT, BODY_AT = 5, len(MARK) + HEADER.size
HEAD_BYTES = 8
CHECKSUM_BYTES = 4
SET_LABELS, ENUM_LABELS = 5, 6


def names(packet: bytes) -> tuple[str, str, int]:
    """Database, table, and where the columns begin."""
    db, at = short_name(packet, BODY_AT + HEAD_BYTES)
    table, at = short_name(packet, at)
    return db, table, at


def fields_at(packet: bytes, columns_at: int) -> int:
    """Behind the columns' types, what belongs to the types, and which may be NULL."""
    width, at = length_coded(packet, columns_at)
    extra_bytes, at = length_coded(packet, at + width)
    return at + extra_bytes + (width + 7) // 8


def fields(packet: bytes, at: int) -> Iterator[tuple[int, int, int, int]]:
    """The number of each field, where it begins, where its value begins, and where that ends."""
    while at < len(packet) - CHECKSUM_BYTES:
        length, begin = length_coded(packet, at + 1)
        yield packet[at], at, begin, begin + length
        at = begin + length


def labels(packet: bytes, wanted: int) -> list[list[bytes]]:
    """Those of each ENUM or SET column, in the column's character set."""
    found: list[list[bytes]] = []
    for number, _, at, end in fields(packet, fields_at(packet, names(packet)[2])):
        while number == wanted and at < end:
            count, at = length_coded(packet, at)
            texts = []
            for _ in range(count):
                length, begin = length_coded(packet, at)
                at = begin + length
                texts.append(packet[begin:at])
            found.append(texts)
    return found


def short_name(data: bytes, at: int) -> tuple[str, int]:
    """After its length of one byte, before a zero."""
    end = at + 1 + data[at]
    return data[at + 1 : end].decode(), end + 1


def length_coded(data: bytes, at: int) -> tuple[int, int]:
    """Up to 250 the byte itself; beyond, it says how many bytes follow."""
    first = data[at]
    if first < 251:
        return first, at + 1
    end = at + 1 + {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : end], "little"), end
