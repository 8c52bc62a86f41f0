"""The columns of a table in the binlog: from its TABLE_MAP event, and from the schema history what that leaves out."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import ENUM_LABELS, SET_LABELS, read_labels
from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY, column_decoder
from ottla.pipeline.ingest.cdc.mysql.schema_history import ColumnSchema, TableVersion


@dataclass(frozen=True)
class BinlogColumn:
    """`field_type`, `size`, `precision` and `decimals` are the event's; the others may be the schema history's."""

    name: str
    field_type: int
    unsigned: bool = False
    charset: str = BINARY
    labels: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    decimals: int = 0


def version_in(event: Any, since: str) -> TableVersion:
    """The table as a TABLE_MAP event with full metadata describes it."""
    labels = _labels_in(event)
    columns = tuple(
        ColumnSchema(column.name, bool(column.unsigned), _charset_of(column), next(labels[column.type], ()))
        for column in event.columns
    )
    metadata = event.optional_metadata
    in_key = {*metadata.simple_primary_key_list, *metadata.primary_keys_with_prefix}
    key = tuple(column.name for index, column in enumerate(columns) if index in in_key)
    return TableVersion(event.schema, event.table, since, columns, key)


def _charset_of(column: Any) -> str:
    return str(column.character_set_name or BINARY)


def _labels_in(event: Any) -> Mapping[int, Iterator[tuple[str, ...]]]:
    """The labels of the ENUM and of the SET columns, in their order. The library decodes all of them as UTF-8."""
    found: dict[int, Iterator[tuple[str, ...]]] = defaultdict(lambda: iter(()))
    for field_type, field in ((FIELD_TYPE.ENUM, ENUM_LABELS), (FIELD_TYPE.SET, SET_LABELS)):
        columns = [column for column in event.columns if column.type == field_type]
        if columns:
            encoded = read_labels(event.packet.packet.get_all_data(), field)
            found[field_type] = (
                tuple(
                    map(
                        column_decoder(_charset_of(column), column.name, f"{event.schema}.{event.table}"),
                        labels,
                    )
                )
                for column, labels in zip(columns, encoded, strict=True)
            )
    return found


def column_of(column: Any, schema: ColumnSchema) -> BinlogColumn:
    """Joins an event's column, whose sizes the library names by type, with its schema."""
    sizes: dict[int, Callable[[], int]] = {
        FIELD_TYPE.BLOB: lambda: column.length_size,
        FIELD_TYPE.GEOMETRY: lambda: column.length_size,
        FIELD_TYPE.JSON: lambda: column.length_size,
        FIELD_TYPE.VARCHAR: lambda: column.max_length,
        FIELD_TYPE.STRING: lambda: column.max_length,
        FIELD_TYPE.VAR_STRING: lambda: column.max_length,
        FIELD_TYPE.ENUM: lambda: column.size,
        FIELD_TYPE.SET: lambda: column.size,
    }
    precision = getattr(column, "fsp", getattr(column, "precision", getattr(column, "bits", 0)))
    return BinlogColumn(
        name=schema.name,
        field_type=column.type,
        unsigned=schema.unsigned,
        charset=schema.charset,
        labels=schema.labels,
        size=sizes.get(column.type, lambda: 0)(),
        precision=precision,
        decimals=getattr(column, "decimals", 0),
    )
