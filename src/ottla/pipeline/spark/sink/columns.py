"""Checks the columns that the sink writes, before a task starts."""

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.pipeline.errors import PipelineError


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType | NullType)


def is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and _is_bytes(fields["value"])
    )


# name: the check of its type, and the type in words
COLUMNS: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "key": (_is_bytes, "binary or string"),
    "value": (_is_bytes, "binary or string"),
    "headers": (is_headers, "array<struct<key:string,value:binary>>"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType | ShortType | LongType), "int"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp"),
}


def check_columns(schema: StructType, *, has_topic: bool) -> None:
    """Other columns are ignored."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            continue
        is_right, words = COLUMNS[field.name]
        if not is_right(field.dataType):
            raise PipelineError(
                f"The column `{field.name}` is {field.dataType.simpleString()}, and must be {words}.",
                "Cast it, or convert it, as with to_json.",
            )
    if "value" not in schema.names:
        raise PipelineError(
            f"The rows have no column `value`; they have {', '.join(schema.names) or 'none at all'}.",
            "Select the columns to write AS value, and AS key.",
        )
    if "topic" not in schema.names and not has_topic:
        raise PipelineError("The rows have no topic.", "Set the option `topic`, or add a column `topic`.")
