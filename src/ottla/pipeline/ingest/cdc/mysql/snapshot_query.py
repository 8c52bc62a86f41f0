"""How a snapshot selects a table, and converts its values to those that the binlog would give."""

from collections.abc import Callable
from typing import Any

from ottla.pipeline.ingest.cdc import values
from ottla.pipeline.ingest.cdc.mysql import values as mysql_values
from ottla.pipeline.ingest.cdc.mysql.server import quote
from ottla.pipeline.ingest.cdc.mysql.tables import CapturedTable, TableColumn

_Converter = Callable[[Any], Any]

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
# Types whose stored bytes are in the binlog, and how many bytes.
_STORED_AS_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
_GEOMETRIES = (
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
_ZERO_DATE = "0000-00-00"


def select_statement(table: CapturedTable) -> str:
    columns = ", ".join(_expression(column) for column in table.columns)
    return f"SELECT {columns} FROM {quote(table.db)}.{quote(table.name)}"


def _expression(column: TableColumn) -> str:
    name = quote(column.name)
    if column.data_type == "float":
        # The server writes a FLOAT with six digits, a DOUBLE with all of them.
        return f"{name} + 0e0"
    if column.data_type in _STORED_AS_BYTES:
        return f"CAST({name} AS BINARY({_STORED_AS_BYTES[column.data_type]}))"
    if column.data_type == "vector":
        # The client does not know the type, and would decode its bytes as text.
        return f"CAST({name} AS BINARY)"
    return name


def converter(column: TableColumn) -> _Converter:
    """From the server's value to the value in a record."""
    data_type = column.data_type
    if data_type in _INTEGERS:
        return int
    if data_type in _BYTES or data_type in _STORED_AS_BYTES:
        return values.base64_text
    if data_type in _GEOMETRIES:
        return mysql_values.geometry
    if data_type == "bit":
        width = int(column.column_type.partition("(")[2].rstrip(")") or 1)
        return lambda data: mysql_values.bits(int.from_bytes(data, "big"), width)
    converters: dict[str, _Converter] = {
        "float": lambda text: mysql_values.shortest_float(float(text)),
        "double": float,
        "date": convert_date,
        "time": values.time_us,
        "datetime": lambda text: convert_date_time(text, column.precision),
        "timestamp": _convert_timestamp,
        "vector": mysql_values.vector,
    }
    return converters.get(data_type, _keep)


def _keep(value: Any) -> Any:
    return value


def convert_date(text: str) -> int | None:
    return values.days(int(text[:4]), int(text[5:7]), int(text[8:10]))


def convert_date_time(text: str, precision: int) -> int | None:
    return values.date_time(convert_date(text), values.time_us(text[11:]), precision)


def _convert_timestamp(text: str) -> str | None:
    return None if text.startswith(_ZERO_DATE) else f"{text[:10]}T{text[11:]}Z"
