"""A table as the binlog announces it before its rows: the names, signs, character sets and sizes of its columns."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE

from ottla.pipeline.ingest.cdc.mysql.binlog.rows import Column
from ottla.pipeline.ingest.cdc.mysql.binlog.table_map import ENUM_LABELS, SET_LABELS, labels
from ottla.pipeline.ingest.cdc.mysql.charsets import BINARY, column_decoder
from ottla.pipeline.ingest.cdc.mysql.schema_history import Described, Version


def shown_version(event: Any, since: str) -> Version:
    labels = labels_of(event)
    columns = tuple(
        Described(column.name, bool(column.unsigned), charset_of(column), next(labels[column.type], ()))
        for column in event.columns
    )
    metadata = event.optional_metadata
    in_key = {*metadata.simple_primary_key_list, *metadata.primary_keys_with_prefix}
    key = tuple(column.name for index, column in enumerate(columns) if index in in_key)
    return Version(event.schema, event.table, since, columns, key)


def charset_of(column: Any) -> str:
    return str(column.character_set_name or BINARY)


def labels_of(event: Any) -> Mapping[int, Iterator[tuple[str, ...]]]:
    """Of the ENUM columns and of the SET columns, in their order. The library reads them as if all were UTF-8."""
    found: dict[int, Iterator[tuple[str, ...]]] = defaultdict(lambda: iter(()))
    for kind, field in ((FIELD_TYPE.ENUM, ENUM_LABELS), (FIELD_TYPE.SET, SET_LABELS)):
        columns = [column for column in event.columns if column.type == kind]
        if columns:
            shown = labels(event.packet.packet.get_all_data(), field)
            found[kind] = (
                tuple(
                    map(
                        column_decoder(charset_of(column), column.name, f"{event.schema}.{event.table}"),
                        texts,
                    )
                )
                for column, texts in zip(columns, shown, strict=True)
            )
    return found


def physical(column: Any, described: Described) -> Column:
    """The event's sizes under the names that the library gives them by type."""
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
    return Column(
        name=described.name,
        kind=column.type,
        unsigned=described.unsigned,
        charset=described.charset,
        labels=described.labels,
        size=sizes.get(column.type, lambda: 0)(),
        precision=precision,
        decimals=getattr(column, "decimals", 0),
    )
