"""Schemas and required fields, shared by the parts that parse."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError

# The column into which Spark's parsers put the text of a record that does not fit the schema.
BAD = "_bad"


def parsed_schema(schema: str | StructType) -> StructType:
    """A copy, which the caller may extend."""
    if isinstance(schema, StructType):
        return StructType(list(schema.fields))
    try:
        fields = StructType.fromDDL(schema)
    except Exception as error:
        raise PipelineError(
            f"The schema {schema!r} cannot be read: {str(error).strip().splitlines()[0]}",
            'Write it as Spark does, as in "id long, name string, at timestamp".',
        ) from None
    assert isinstance(fields, StructType)
    return fields


def required_reason(into: str, required: Sequence[str]) -> Column:
    """Which required field (a path such as `customer.id`) is missing or null; null for tombstones."""
    reason: Column = F.lit(None).cast("string")
    for name in reversed(required):
        is_missing = F.col(into).isNotNull() & F.col(f"{into}.{name}").isNull()
        reason = F.when(is_missing, f"the required field `{name}` is missing").otherwise(reason)
    return reason


def without_bad(rows: DataFrame, into: str) -> DataFrame:
    return rows.withColumn(into, F.col(into).dropFields(BAD))
