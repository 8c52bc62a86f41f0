"""Parses and writes JSON. A record that does not fit the schema is marked, with the field that is wrong."""

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from ottla.pipeline.transform.columns import mark
from ottla.pipeline.transform.parts.schemas import BAD, parsed_schema, required_reason, without_bad

_EXCERPT_LENGTH = 60


def parse_json(
    rows: DataFrame,
    schema: str | StructType,
    *,
    column: str = "value",
    into: str = "data",
    required: Sequence[str] = (),
    rest: str | None = None,
) -> DataFrame:
    """Adds the struct `into` with the fields of `schema`, a DDL text such as "id long, amount decimal(10,2)".

    Fields that are not in the schema are left out, or kept as text in the map column `rest`. A record without one of
    the `required` fields is marked. A null value, a tombstone, stays null and is not an error.
    """
    fields = parsed_schema(schema)
    text = F.col(column).cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    found = rows.withColumn(into, F.from_json(text, fields.add(BAD, "string"), options))
    found = mark(found, _json_reason(text, F.col(into), parsed_schema(schema)))
    found = without_bad(mark(found, required_reason(into, required)), into)
    if rest is None:
        return found
    known = F.array(*(F.lit(name) for name in parsed_schema(schema).names))
    everything = F.from_json(text, "map<string,string>")
    return found.withColumn(rest, F.map_filter(everything, lambda name, _: ~F.array_contains(known, name)))


def write_json(rows: DataFrame, *columns: str, into: str = "value") -> DataFrame:
    """Writes one struct column, or several columns as one object, as JSON into `into`. A null struct stays null."""
    is_struct = len(columns) == 1 and isinstance(rows.select(columns[0]).schema[0].dataType, StructType)
    whole = F.col(columns[0]) if is_struct else F.struct(*columns)
    return rows.withColumn(into, F.to_json(whole).cast("binary"))


def _json_reason(text: Column, data: Column, schema: StructType) -> Column:
    """Why `text` could not be parsed as `data`; null if it could."""
    misfits = _misfits_of(text, data, schema)
    wrong = F.when(F.size(misfits) > 0, F.array_join(misfits, "; ")).otherwise(
        F.concat(F.lit("not a JSON object of the schema: "), excerpt(text))
    )
    # from_json stops at the end of the first value: if another one follows, this is not an array of two elements
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))) == 2
    return (
        F.when(text.isNull(), None)
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(data.isNull(), "empty, where JSON was expected")
        .when(data[BAD].isNotNull(), wrong)
        .when(~F.coalesce(alone, F.lit(False)), F.concat(F.lit("not one JSON object: "), excerpt(text)))
    )


def _misfits_of(text: Column, data: Column, schema: StructType) -> Column:
    """The fields of the text that are not of their type in the schema, each with its value in the text.

    One lambda over the paths, not one expression for each: Spark could not compile the plan of a wide table.
    """
    fields = F.array(*(_path_of(names, kind) for names, kind in paths(schema)))
    parsed = F.to_json(data)

    def is_misfit(field: Column) -> Column:
        found = F.call_function("get_json_object", text, field["path"])
        return found.isNotNull() & F.call_function("get_json_object", parsed, field["path"]).isNull()

    def describe(field: Column) -> Column:
        return F.concat(field["is_not"], excerpt(F.call_function("get_json_object", text, field["path"])))

    return F.transform(F.filter(fields, is_misfit), describe)


def _path_of(names: Sequence[str], kind: DataType) -> Column:
    path = "$" + "".join(f"['{name}']" for name in names)
    is_not = f"`{'.'.join(names)}` is not {kind.simpleString()}: "
    return F.struct(F.lit(path).alias("path"), F.lit(is_not).alias("is_not"))


def paths(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Every field of a schema and of its nested structs: its path and type."""
    for field in schema:
        path = (*above, field.name)
        yield path, field.dataType
        if isinstance(field.dataType, StructType):
            yield from paths(field.dataType, path)


def excerpt(text: Column) -> Column:
    short = F.substring(text, 1, _EXCERPT_LENGTH)
    return F.when(F.length(text) > _EXCERPT_LENGTH, F.concat(short, F.lit("..."))).otherwise(short)
