"""Decodes the rows of a binlog event into the values of a record.

A decoder takes the event's bytes and a position in them, and returns the value and the position behind it. The decoders
of a table are made once, so a row costs one call per column. The layouts are those of MySQL's row events.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql import values as mysql_values
from ottla.pipeline.ingest.cdc.mysql.binlog.columns import BinlogColumn
from ottla.pipeline.ingest.cdc.mysql.binlog.decimals import decimal_decoder
from ottla.pipeline.ingest.cdc.mysql.binlog.json_values import json_text
from ottla.pipeline.ingest.cdc.mysql.binlog.vectors import VECTOR_MARK, is_vector
from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY, column_decoder

_Decoder = Callable[[bytes, int], tuple[Any, int]]

_INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}


class RowDecoder:
    """Rows of one table as lists of values in the order of its columns."""

    def __init__(self, table: str, columns: Sequence[BinlogColumn]) -> None:
        self.decoders = [_column_decoder(column, table) for column in columns]
        self.bitmap_bytes = (len(columns) + 7) // 8

    def decode(self, data: bytes) -> Iterator[list[Any]]:
        at = 0
        while at < len(data):
            row, at = self._decode_row(data, at)
            yield row

    def _decode_row(self, data: bytes, at: int) -> tuple[list[Any], int]:
        nulls = int.from_bytes(data[at : at + self.bitmap_bytes], "little")
        at += self.bitmap_bytes
        row: list[Any] = []
        for index, decode in enumerate(self.decoders):
            if nulls >> index & 1:
                row.append(None)
            else:
                value, at = decode(data, at)
                row.append(value)
        return row, at


def _column_decoder(column: BinlogColumn, table: str) -> _Decoder:
    field_type = column.field_type
    if field_type in _INTEGERS:
        return _integer(_INTEGERS[field_type], column.unsigned)
    if field_type == FIELD_TYPE.BLOB and is_vector(column.size):
        return _prefixed(column.size - VECTOR_MARK, mysql_values.vector)
    if field_type in (FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.BLOB):
        return _text_or_bytes(column, table)
    if field_type == FIELD_TYPE.GEOMETRY:
        return _prefixed(column.size, mysql_values.geometry)
    if field_type == FIELD_TYPE.JSON:
        return _prefixed(column.size, json_text)
    decoders: dict[int, Callable[[], _Decoder]] = {
        FIELD_TYPE.TIMESTAMP2: lambda: _timestamp(column.precision),
        FIELD_TYPE.DATETIME2: lambda: date_time_decoder(column.precision),
        FIELD_TYPE.TIME2: lambda: time_decoder(column.precision),
        FIELD_TYPE.FLOAT: lambda: _real("<f", 4, mysql_values.shortest_float),
        FIELD_TYPE.DOUBLE: lambda: _real("<d", 8, float),
        FIELD_TYPE.NEWDECIMAL: lambda: decimal_decoder(column.precision, column.decimals),
        FIELD_TYPE.YEAR: lambda: _decode_year,
        FIELD_TYPE.DATE: lambda: decode_date,
        FIELD_TYPE.BIT: lambda: _bits(column.precision),
        FIELD_TYPE.ENUM: lambda: _enum(column.size, column.labels),
        FIELD_TYPE.SET: lambda: _label_set(column.size, column.labels),
    }
    if field_type not in decoders:
        raise PipelineError(
            f"Column `{column.name}` of {table} has a type that cannot be captured (type {field_type} in the binlog).",
            "Convert dates and times from before MariaDB 10.1 with ALTER TABLE ... FORCE; change COMPRESSED columns to "
            "another type; or leave the table out of `tables`.",
        )
    return decoders[field_type]()


def _integer(width: int, unsigned: bool) -> _Decoder:
    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + width
        return int.from_bytes(data[at:end], "little", signed=not unsigned), end

    return decode


def _real(layout: str, width: int, finish: Callable[[float], float]) -> _Decoder:
    unpack = struct.Struct(layout).unpack_from

    def decode(data: bytes, at: int) -> tuple[float, int]:
        return finish(unpack(data, at)[0]), at + width

    return decode


def _prefixed(width: int, finish: Callable[[bytes], Any]) -> _Decoder:
    """Bytes that come after their length, which has `width` bytes."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        return finish(data[begin:end]), end

    return decode


def _text_or_bytes(column: BinlogColumn, table: str) -> _Decoder:
    width = column.size if column.field_type == FIELD_TYPE.BLOB else (2 if column.size > 255 else 1)
    if column.charset == BINARY:
        # The binlog omits the zeros at the end of BINARY(n).
        length = column.size if column.field_type == FIELD_TYPE.STRING else 0
        return _prefixed(width, lambda data: values.base64_text(data.ljust(length, b"\0")))
    return _prefixed(width, column_decoder(column.charset, column.name, table))


def _fraction_bytes(precision: int) -> int:
    return (precision + 1) // 2


def _fraction_us(stored: int, width: int) -> int:
    """Each byte of a fraction of a second holds two digits."""
    return int(stored * 10 ** (6 - 2 * width))


def _timestamp(precision: int) -> _Decoder:
    width = _fraction_bytes(precision)

    def decode(data: bytes, at: int) -> tuple[str | None, int]:
        middle, end = at + 4, at + 4 + width
        fraction = _fraction_us(int.from_bytes(data[middle:end], "big"), width)
        return mysql_values.timestamp(int.from_bytes(data[at:middle], "big"), fraction, precision), end

    return decode


def date_time_decoder(precision: int) -> _Decoder:
    width = _fraction_bytes(precision)

    def decode(data: bytes, at: int) -> tuple[int | None, int]:
        middle, end = at + 5, at + 5 + width
        packed = int.from_bytes(data[at:middle], "big") - (1 << 39)
        year, month = divmod(packed >> 22, 13)
        day = values.days(year, month, packed >> 17 & 31)
        seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        fraction = _fraction_us(int.from_bytes(data[middle:end], "big"), width)
        return values.date_time(day, seconds * 1_000_000 + fraction, precision), end

    return decode


def time_decoder(precision: int) -> _Decoder:
    width = _fraction_bytes(precision)
    zero = 1 << (23 + 8 * width)

    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + 3 + width
        signed = int.from_bytes(data[at:end], "big") - zero
        packed, fraction = divmod(abs(signed), 1 << (8 * width))
        seconds = (packed >> 12 & 1023) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        total = seconds * 1_000_000 + _fraction_us(fraction, width)
        return (-total if signed < 0 else total), end

    return decode


def _decode_year(data: bytes, at: int) -> tuple[int, int]:
    return (data[at] + 1900 if data[at] else 0), at + 1


def decode_date(data: bytes, at: int) -> tuple[int | None, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return values.days(packed >> 9, packed >> 5 & 15, packed & 31), at + 3


def _bits(width: int) -> _Decoder:
    def decode(data: bytes, at: int) -> tuple[bool | str, int]:
        end = at + (width + 7) // 8
        return mysql_values.bits(int.from_bytes(data[at:end], "big"), width), end

    return decode


def _enum(width: int, labels: tuple[str, ...]) -> _Decoder:
    """Zero is the empty text that the server stores for a value that is not allowed."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + width], "little")
        return (labels[number - 1] if number else ""), at + width

    return decode


def _label_set(width: int, labels: tuple[str, ...]) -> _Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        mask = int.from_bytes(data[at : at + width], "little")
        return ",".join(label for index, label in enumerate(labels) if mask >> index & 1), at + width

    return decode
