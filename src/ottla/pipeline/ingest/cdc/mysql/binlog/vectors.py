"""VECTOR columns, which MySQL has since 9.0 and the library does not know.

In the announcement of a table they are made BLOBs, which have the same layout, the length of a value before its bytes,
and a character set too. That they are vectors is marked in the size of the length.
"""

import struct

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import fields, fields_at, length_coded

VECTOR = 242
MARK = 0x80
DIMENSIONS = 13
# What a type has in the announcement of a table beside its number.
ONE_BYTE = (
    FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE,
    FIELD_TYPE.TIMESTAMP2,
    FIELD_TYPE.DATETIME2,
    FIELD_TYPE.TIME2,
    FIELD_TYPE.JSON,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.GEOMETRY,
    VECTOR,
)
TWO_BYTES = (
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.BIT,
    FIELD_TYPE.NEWDECIMAL,
    FIELD_TYPE.ENUM,
    FIELD_TYPE.SET,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.STRING,
)
EXTRA_BYTES = {**dict.fromkeys(ONE_BYTE, 1), **dict.fromkeys(TWO_BYTES, 2)}


def with_vectors_marked(packet: bytes, at: int) -> bytes:
    """The announcement of a table whose columns begin at `at`."""
    width, types_at = length_coded(packet, at)
    types = packet[types_at : types_at + width]
    if VECTOR not in types:
        return packet
    changed = bytearray(packet)
    _, place = length_coded(packet, types_at + width)
    for index, kind in enumerate(types):
        if kind == VECTOR:
            changed[types_at + index] = FIELD_TYPE.BLOB
            changed[place] |= MARK
        place += EXTRA_BYTES.get(kind, 0)
    return without_dimensions(bytes(changed), fields_at(packet, at))


def without_dimensions(packet: bytes, at: int) -> bytes:
    for number, begin, _, end in fields(packet, at):
        if number == DIMENSIONS:
            return packet[:begin] + packet[end:]
    return packet


def is_vector(length_size: int) -> bool:
    return bool(length_size & MARK)


def numbers(data: bytes) -> list[float]:
    return [values.single(number) for (number,) in struct.iter_unpack("<f", data)]
