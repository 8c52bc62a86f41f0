"""Parses records that are one line of CSV each."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.transform.columns import mark
from ottla.pipeline.transform.parts.json import excerpt
from ottla.pipeline.transform.parts.schemas import BAD, parsed_schema, required_reason, without_bad


def parse_csv(
    rows: DataFrame,
    schema: str | StructType,
    *,
    column: str = "value",
    into: str = "data",
    required: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Adds the struct `into` with the fields of `schema` in the order of the line.

    `options` are those of Spark's CSV source, as {"sep": ";", "dateFormat": "dd.MM.yyyy"}. A line with too few or too
    many fields, or with one that is not of its type, is marked.
    """
    fields = parsed_schema(schema)
    width = len(fields)
    text = F.col(column).cast("string")
    given = {**(options or {}), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    found = rows.withColumn(into, F.from_csv(text, F.lit(fields.add(BAD, "string").toDDL()), given))
    found = mark(found, _csv_reason(text, F.col(into), width))
    return without_bad(mark(found, required_reason(into, required)), into)


def _csv_reason(text: Column, data: Column, width: int) -> Column:
    reason = F.concat(F.lit(f"not a CSV line of these {width} fields: "), excerpt(text))
    return (
        F.when(text.isNull(), None)
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.trim(text) == "", "empty, where a CSV line was expected")
        .when(data[BAD].isNotNull(), reason)
    )
