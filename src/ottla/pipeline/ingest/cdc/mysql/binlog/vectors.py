"""VECTOR columns, which MySQL has since 9.0 and the library does not know.

In TABLE_MAP events they are turned into BLOBs, which have the same layout (the length of a value before its bytes) and
a character set too. A bit in the size of the length marks them as vectors.
"""

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import metadata_at, metadata_fields, read_length

_VECTOR = 242
VECTOR_MARK = 0x80
_DIMENSIONS = 13
# How many bytes a TABLE_MAP event has for the details of a type.
_ONE_BYTE = (
    FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE,
    FIELD_TYPE.TIMESTAMP2,
    FIELD_TYPE.DATETIME2,
    FIELD_TYPE.TIME2,
    FIELD_TYPE.JSON,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.GEOMETRY,
    _VECTOR,
)
_TWO_BYTES = (
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.BIT,
    FIELD_TYPE.NEWDECIMAL,
    FIELD_TYPE.ENUM,
    FIELD_TYPE.SET,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.STRING,
)
_DETAIL_BYTES = {**dict.fromkeys(_ONE_BYTE, 1), **dict.fromkeys(_TWO_BYTES, 2)}


def mark_vectors(packet: bytes, at: int) -> bytes:
    """A TABLE_MAP event, whose columns begin at `at`, with VECTOR columns turned into marked BLOBs."""
    count, types_at = read_length(packet, at)
    types = packet[types_at : types_at + count]
    if _VECTOR not in types:
        return packet
    changed = bytearray(packet)
    _, detail_at = read_length(packet, types_at + count)
    for index, column_type in enumerate(types):
        if column_type == _VECTOR:
            changed[types_at + index] = FIELD_TYPE.BLOB
            changed[detail_at] |= VECTOR_MARK
        detail_at += _DETAIL_BYTES.get(column_type, 0)
    return _without_dimensions(bytes(changed), metadata_at(packet, at))


def _without_dimensions(packet: bytes, at: int) -> bytes:
    for field, begin, _, end in metadata_fields(packet, at):
        if field == _DIMENSIONS:
            return packet[:begin] + packet[end:]
    return packet


def is_vector(length_size: int) -> bool:
    return bool(length_size & VECTOR_MARK)
