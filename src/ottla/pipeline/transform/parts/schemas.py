"""What the parsing parts share: a schema as a person gives it, and the fields that must be there."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError

# Where Spark's parsers put the text of a record that does not fit.
BAD = "_bad"


def parsed_schema(schema: str | StructType) -> StructType:
    """A copy, which the caller may add to."""
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
    """Which of the required fields (paths as `customer.id`) is missing or null, where there is a record at all."""
    reason: Column = F.lit(None).cast("string")
    for name in reversed(required):
        is_missing = F.col(into).isNotNull() & F.col(f"{into}.{name}").isNull()
        reason = F.when(is_missing, f"the required field `{name}` is missing").otherwise(reason)
    return reason


def without_bad(rows: DataFrame, into: str) -> DataFrame:
    return rows.withColumn(into, F.col(into).dropFields(BAD))
