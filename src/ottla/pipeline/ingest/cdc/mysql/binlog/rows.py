"""The rows of a binlog event: bytes to the values of a record.

A decoder takes the event's bytes and a position in them, and gives the value and the position behind it. Each table
gets its decoders once, so that a row costs a call per column. The layouts are those of MySQL's row events.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql.binlog.decimals import decimal
from ottla.pipeline.ingest.cdc.mysql.binlog.json_values import json_text
from ottla.pipeline.ingest.cdc.mysql.binlog.vectors import MARK, is_vector, numbers
from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY, column_decoder

Decoder = Callable[[bytes, int], tuple[Any, int]]

INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}


@dataclass(frozen=True)
class Column:
    """`kind` and the sizes come from the event; the name, sign, character set and labels also from the history."""

    name: str
    kind: int
    unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    decimals: int = 0


class RowDecoder:
    """Rows of one table as lists of values in the order of its columns."""

    def __init__(self, table: str, columns: Sequence[Column]) -> None:
        self.decoders = [decoder(column, table) for column in columns]
        self.bitmap_bytes = (len(columns) + 7) // 8

    def one(self, data: bytes, at: int) -> tuple[list[Any], int]:
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

    def all(self, data: bytes) -> Iterator[list[Any]]:
        at = 0
        while at < len(data):
            row, at = self.one(data, at)
            yield row


def decoder(column: Column, table: str) -> Decoder:
    kind = column.kind
    if kind in INTEGERS:
        return integer(INTEGERS[kind], column.unsigned)
    if kind == FIELD_TYPE.BLOB and is_vector(column.size):
        return prefixed(column.size - MARK, numbers)
    if kind in (FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.BLOB):
        return text_or_bytes(column, table)
    if kind == FIELD_TYPE.GEOMETRY:
        return prefixed(column.size, values.geometry)
    if kind == FIELD_TYPE.JSON:
        return prefixed(column.size, json_text)
    if kind in (FIELD_TYPE.TIMESTAMP2, FIELD_TYPE.DATETIME2, FIELD_TYPE.TIME2):
        made = {
            FIELD_TYPE.TIMESTAMP2: timestamp,
            FIELD_TYPE.DATETIME2: date_time,
            FIELD_TYPE.TIME2: clock,
        }[kind]
        return made(column.precision)
    simple: dict[int, Callable[[], Decoder]] = {
        FIELD_TYPE.FLOAT: lambda: real("<f", 4, values.single),
        FIELD_TYPE.DOUBLE: lambda: real("<d", 8, float),
        FIELD_TYPE.NEWDECIMAL: lambda: decimal(column.precision, column.decimals),
        FIELD_TYPE.YEAR: lambda: year,
        FIELD_TYPE.DATE: lambda: date,
        FIELD_TYPE.BIT: lambda: bit_field(column.precision),
        FIELD_TYPE.ENUM: lambda: enum(column.size, column.labels),
        FIELD_TYPE.SET: lambda: label_set(column.size, column.labels),
    }
    if kind not in simple:
        raise PipelineError(
            f"Column `{column.name}` of {table} has a type that cannot be captured (number {kind} in the binlog).",
            "Dates and times of before MariaDB 10.1 become readable with ALTER TABLE ... FORCE; COMPRESSED columns "
            "cannot be read. Or leave the table out of `tables`.",
        )
    return simple[kind]()


def integer(width: int, unsigned: bool) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + width
        return int.from_bytes(data[at:end], "little", signed=not unsigned), end

    return decode


def real(layout: str, width: int, finish: Callable[[float], float]) -> Decoder:
    unpack = struct.Struct(layout).unpack_from

    def decode(data: bytes, at: int) -> tuple[float, int]:
        return finish(unpack(data, at)[0]), at + width

    return decode


def prefixed(width: int, finish: Callable[[bytes], Any]) -> Decoder:
    """Bytes after their length of `width` bytes."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + width
        end = begin + int.from_bytes(data[at:begin], "little")
        return finish(data[begin:end]), end

    return decode


def text_or_bytes(column: Column, table: str) -> Decoder:
    width = column.size if column.kind == FIELD_TYPE.BLOB else (2 if column.size > 255 else 1)
    if column.charset == BINARY:
        # The binlog leaves out the zeros at the end of BINARY(n).
        length = column.size if column.kind == FIELD_TYPE.STRING else 0
        return prefixed(width, lambda data: values.base64_text(data.ljust(length, b"\0")))
    return prefixed(width, column_decoder(column.charset, column.name, table))


def fraction_bytes(precision: int) -> int:
    return (precision + 1) // 2


def fraction_us(stored: int, width: int) -> int:
    """A fraction is kept in steps of a hundredth of what a byte less would hold."""
    return int(stored * 10 ** (6 - 2 * width))


def timestamp(precision: int) -> Decoder:
    width = fraction_bytes(precision)

    def decode(data: bytes, at: int) -> tuple[str | None, int]:
        middle, end = at + 4, at + 4 + width
        fraction = fraction_us(int.from_bytes(data[middle:end], "big"), width)
        return values.timestamp(int.from_bytes(data[at:middle], "big"), fraction, precision), end

    return decode


def date_time(precision: int) -> Decoder:
    width = fraction_bytes(precision)

    def decode(data: bytes, at: int) -> tuple[int | None, int]:
        middle, end = at + 5, at + 5 + width
        packed = int.from_bytes(data[at:middle], "big") - (1 << 39)
        year_of, month = divmod(packed >> 22, 13)
        day = values.days(year_of, month, packed >> 17 & 31)
        seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        fraction = fraction_us(int.from_bytes(data[middle:end], "big"), width)
        return values.date_time(day, seconds * 1_000_000 + fraction, precision), end

    return decode


def clock(precision: int) -> Decoder:
    width = fraction_bytes(precision)
    zero = 1 << (23 + 8 * width)

    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + 3 + width
        signed = int.from_bytes(data[at:end], "big") - zero
        packed, fraction = divmod(abs(signed), 1 << (8 * width))
        seconds = (packed >> 12 & 1023) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        total = seconds * 1_000_000 + fraction_us(fraction, width)
        return (-total if signed < 0 else total), end

    return decode


def year(data: bytes, at: int) -> tuple[int, int]:
    return (data[at] + 1900 if data[at] else 0), at + 1


def date(data: bytes, at: int) -> tuple[int | None, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return values.days(packed >> 9, packed >> 5 & 15, packed & 31), at + 3


def bit_field(width: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bool | str, int]:
        end = at + (width + 7) // 8
        return values.bits(int.from_bytes(data[at:end], "big"), width), end

    return decode


def enum(width: int, labels: tuple[str, ...]) -> Decoder:
    """Zero stands for the empty text of a value that was not allowed."""

    def decode(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + width], "little")
        return (labels[number - 1] if number else ""), at + width

    return decode


def label_set(width: int, labels: tuple[str, ...]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        mask = int.from_bytes(data[at : at + width], "little")
        return ",".join(label for index, label in enumerate(labels) if mask >> index & 1), at + width

    return decode
