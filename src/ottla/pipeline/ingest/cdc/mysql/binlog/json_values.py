"""MySQL's JSON values: from the binary form in the binlog to the text that a SELECT gives.

An object or array begins with the number of its members and its size, two or four bytes each. Then come, for each
member of an object, the position of its key, and for each member its type and the position of its value, or the value
itself if it is small. Positions count from the start of the object or array.
"""

import base64
import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc.mysql.binlog.decimals import decimal_decoder

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING = 0x0B, 0x0C
_LITERALS = ("null", "true", "false")
_INTEGERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_INT16, _UINT16, _INT32, _UINT32 = 5, 6, 7, 8
_INLINE = {2: (_LITERAL, _INT16, _UINT16), 4: (_LITERAL, _INT16, _UINT16, _INT32, _UINT32)}
_DATES = (FIELD_TYPE.DATE, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP)
_PLAIN_EXPONENTS = range(-15, 15)

_quote: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False).encode


def json_text(data: bytes) -> str:
    """An INSERT IGNORE of NULL into a NOT NULL column stores no bytes."""
    return _value_text(data[0], data, 1) if data else "null"


def _value_text(value_type: int, data: bytes, at: int) -> str:
    if value_type <= _LARGE_ARRAY:
        width = 4 if value_type in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
        return _container_text(value_type in (_SMALL_OBJECT, _LARGE_OBJECT), data[at:], width)
    if value_type == _LITERAL:
        return _LITERALS[data[at]]
    if value_type in _INTEGERS:
        return str(struct.unpack_from(_INTEGERS[value_type], data, at)[0])
    if value_type == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if value_type == _STRING:
        length, at = _read_length(data, at)
        return _quote(data[at : at + length].decode())
    length, begin = _read_length(data, at + 1)
    return _opaque_text(data[at], data[begin : begin + length])


def _container_text(is_object: bool, data: bytes, width: int) -> str:
    count = int.from_bytes(data[:width], "little")
    keys_at = 2 * width
    key_bytes = width + 2 if is_object else 0
    values_at = keys_at + count * key_bytes
    members = []
    for index in range(count):
        at = values_at + index * (1 + width)
        value_type = data[at]
        value_at = (
            at + 1
            if value_type in _INLINE[width]
            else int.from_bytes(data[at + 1 : at + 1 + width], "little")
        )
        text = _value_text(value_type, data, value_at)
        if is_object:
            entry = keys_at + index * key_bytes
            begin = int.from_bytes(data[entry : entry + width], "little")
            length = int.from_bytes(data[entry + width : entry + key_bytes], "little")
            text = f"{_quote(data[begin : begin + length].decode())}: {text}"
        members.append(text)
    return ("{%s}" if is_object else "[%s]") % ", ".join(members)


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits in each byte, the lowest first; the eighth bit says that more bytes follow."""
    length = shift = 0
    while True:
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return length, at


def double_text(value: float) -> str:
    """As MySQL writes it: the shortest text of the same number, with an exponent only if that is large."""
    shortest = Decimal(repr(value)).normalize()
    exponent = shortest.adjusted()
    has_fraction = exponent >= 0 and shortest != shortest.to_integral_value()
    if exponent in _PLAIN_EXPONENTS or has_fraction or not value:
        plain = f"{shortest:f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{shortest.scaleb(-exponent):f}e{exponent}"


def _opaque_text(value_type: int, data: bytes) -> str:
    """Values that JSON has no type for: decimals as numbers, dates and times as text, others as Base64."""
    if value_type == FIELD_TYPE.NEWDECIMAL:
        return decimal_decoder(data[0], data[1])(data, 2)[0]
    if value_type in _DATES or value_type == FIELD_TYPE.TIME:
        return f'"{_time_text(value_type, int.from_bytes(data, "little", signed=True))}"'
    return f'"base64:type{value_type}:{base64.b64encode(data).decode("ascii")}"'


def _time_text(value_type: int, packed: int) -> str:
    sign = "-" if packed < 0 else ""
    whole, fraction = divmod(abs(packed), 1 << 24)
    day, clock = divmod(whole, 1 << 17)
    time = f"{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{fraction:06d}"
    if value_type == FIELD_TYPE.TIME:
        return sign + f"{whole >> 12 & 1023:02d}{time[2:]}"
    year, month = divmod(day >> 5, 13)
    date = f"{year:04d}-{month:02d}-{day & 31:02d}"
    return date if value_type == FIELD_TYPE.DATE else f"{date} {time}"
