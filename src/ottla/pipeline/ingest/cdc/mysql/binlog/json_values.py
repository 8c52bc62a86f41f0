"""MySQL's JSON values: from the binary form in the binlog to the text that a SELECT gives.

An object or array begins with the number of its members and its size, both of two or four bytes; then for each member
of an object where its key is, and for each member its type and where its value is, or the value itself if it is small.
Places count from the beginning of the object or array.
"""

import base64
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc.mysql.binlog.decimals import decimal

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = range(5)
DOUBLE, STRING, OPAQUE = 0x0B, 0x0C, 0x0F
LITERALS = ("null", "true", "false")
INTEGERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
INT16, UINT16, INT32, UINT32 = 5, 6, 7, 8
INLINE = {2: (LITERAL, INT16, UINT16), 4: (LITERAL, INT16, UINT16, INT32, UINT32)}
DATES = (FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP)
PLAIN_EXPONENTS = range(-15, 15)

quoted: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False).encode


def json_text(data: bytes) -> str:
    """No bytes at all are what an INSERT IGNORE of NULL leaves in a column that has no NULL."""
    return value_text(data[0], data, 1) if data else "null"


def value_text(kind: int, data: bytes, at: int) -> str:
    if kind <= LARGE_ARRAY:
        width = 4 if kind in (LARGE_OBJECT, LARGE_ARRAY) else 2
        return container_text(kind in (SMALL_OBJECT, LARGE_OBJECT), data[at:], width)
    if kind == LITERAL:
        return LITERALS[data[at]]
    if kind in INTEGERS:
        return str(struct.unpack_from(INTEGERS[kind], data, at)[0])
    if kind == DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == STRING:
        length, at = string_length(data, at)
        return quoted(data[at : at + length].decode())
    length, begin = string_length(data, at + 1)
    return opaque_text(data[at], data[begin : begin + length])


def container_text(is_object: bool, data: bytes, width: int) -> str:
    count = int.from_bytes(data[:width], "little")
    keys_at = 2 * width
    key_bytes = width + 2 if is_object else 0
    values_at = keys_at + count * key_bytes
    members = []
    for index in range(count):
        at = values_at + index * (1 + width)
        kind = data[at]
        place = at + 1 if kind in INLINE[width] else int.from_bytes(data[at + 1 : at + 1 + width], "little")
        text = value_text(kind, data, place)
        if is_object:
            entry = keys_at + index * key_bytes
            begin = int.from_bytes(data[entry : entry + width], "little")
            length = int.from_bytes(data[entry + width : entry + key_bytes], "little")
            text = f"{quoted(data[begin : begin + length].decode())}: {text}"
        members.append(text)
    return ("{%s}" if is_object else "[%s]") % ", ".join(members)


def string_length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits in each byte, the lowest first; the eighth says that more follow."""
    length = shift = 0
    while True:
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return length, at


def double_text(value: float) -> str:
    """The shortest number that is the same, plain while its first digit is near the point, as MySQL writes it."""
    shortest = Decimal(repr(value)).normalize()
    exponent = shortest.adjusted()
    has_fraction = exponent >= 0 and shortest != shortest.to_integral_value()
    if exponent in PLAIN_EXPONENTS or has_fraction or not value:
        plain = f"{shortest:f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{shortest.scaleb(-exponent):f}e{exponent}"


def opaque_text(kind: int, data: bytes) -> str:
    """Values that JSON has no form for: decimals as numbers, times as text, others as their bytes."""
    if kind == FIELD_TYPE.NEWDECIMAL:
        return decimal(data[0], data[1])(data, 2)[0]
    if kind in DATES or kind == FIELD_TYPE.TIME:
        return f'"{moment_text(kind, int.from_bytes(data, "little", signed=True))}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode("ascii")}"'


def moment_text(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    whole, fraction = divmod(abs(packed), 1 << 24)
    day, clock = divmod(whole, 1 << 17)
    time = f"{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{fraction:06d}"
    if kind == FIELD_TYPE.TIME:
        return sign + f"{whole >> 12 & 1023:02d}{time[2:]}"
    year, month = divmod(day >> 5, 13)
    date = f"{year:04d}-{month:02d}-{day & 31:02d}"
    return date if kind == FIELD_TYPE.DATE else f"{date} {time}"
