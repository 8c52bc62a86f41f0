"""How a snapshot selects a column so that its value is the one which the binlog would give."""

from collections.abc import Callable
from typing import Any

from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql.binlog import vectors
from ottla.pipeline.ingest.cdc.mysql.tables import CapturedTable, TableColumn

Reader = Callable[[Any], Any]

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
# Types that the binlog shows as the bytes they are kept in.
KEPT_AS_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)
ZERO_DATE = "0000-00-00"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def statement(table: CapturedTable) -> str:
    columns = ", ".join(expression(column) for column in table.columns)
    return f"SELECT {columns} FROM {quoted(table.db)}.{quoted(table.name)}"


def expression(column: TableColumn) -> str:
    name = quoted(column.name)
    if column.kind == "float":
        # As it is, a FLOAT is written with six digits; as a DOUBLE with all of them.
        return f"{name} + 0e0"
    if column.kind in KEPT_AS_BYTES:
        return f"CAST({name} AS BINARY({KEPT_AS_BYTES[column.kind]}))"
    if column.kind == "vector":
        # The client takes the bytes of a type that it does not know for text.
        return f"CAST({name} AS BINARY)"
    return name


def reader(column: TableColumn) -> Reader:
    """From what the server writes to what a record holds."""
    kind = column.kind
    if kind in INTEGERS:
        return int
    if kind in BYTES or kind in KEPT_AS_BYTES:
        return values.base64_text
    if kind in GEOMETRIES:
        return values.geometry
    if kind == "bit":
        width = int(column.declared.partition("(")[2].rstrip(")") or 1)
        return lambda data: values.bits(int.from_bytes(data, "big"), width)
    readers: dict[str, Reader] = {
        "float": lambda text: values.single(float(text)),
        "double": float,
        "date": read_date,
        "time": values.clock_us,
        "datetime": lambda text: read_date_time(text, column.precision),
        "timestamp": read_timestamp,
        "vector": vectors.numbers,
    }
    return readers.get(kind, as_it_is)


def as_it_is(value: Any) -> Any:
    return value


def read_date(text: str) -> int | None:
    return values.days(int(text[:4]), int(text[5:7]), int(text[8:10]))


def read_date_time(text: str, precision: int) -> int | None:
    return values.date_time(read_date(text), values.clock_us(text[11:]), precision)


def read_timestamp(text: str) -> str | None:
    return None if text.startswith(ZERO_DATE) else f"{text[:10]}T{text[11:]}Z"
