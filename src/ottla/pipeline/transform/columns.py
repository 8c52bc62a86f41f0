"""The two columns that accompany a raw record through a transform: `_origin` and `_error`.

`_origin` is the record as it was read, so that a dead letter can carry it byte for byte. `_error` is null while the
record is good. A part that cannot process a record writes the reason there, and the record becomes a dead letter at
the end. Nothing is raised, so one bad record does not stop the others.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ORIGIN = "_origin"
ERROR = "_error"
_ORIGIN_FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def with_origin(raw: DataFrame) -> DataFrame:
    """The rows of a topic as a transform's function gets them."""
    origin = F.struct(*(F.col(name) for name in _ORIGIN_FIELDS))
    return raw.withColumns({ORIGIN: origin, ERROR: F.lit(None).cast("string")})


def error_of(rows: DataFrame) -> Column:
    """`_error`, or null for rows that a function returned without it."""
    return F.col(ERROR) if ERROR in rows.columns else F.lit(None).cast("string")


def mark(rows: DataFrame, reason: Column) -> DataFrame:
    """Sets `_error` where `reason` is not null. A record keeps its first reason: later ones follow from it."""
    return rows.withColumn(ERROR, F.coalesce(error_of(rows), reason))
