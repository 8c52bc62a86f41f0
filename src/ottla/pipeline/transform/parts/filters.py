"""Which records go on, which are refused, and to which topic they go."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.transform.columns import error_of, mark


def keep(rows: DataFrame, condition: str | Column) -> DataFrame:
    """The rows for which the condition is true. Marked rows stay: Spark's own `filter` would lose dead letters."""
    return rows.filter(as_column(condition) | error_of(rows).isNotNull())


def reject(rows: DataFrame, condition: str | Column, reason: str | Column) -> DataFrame:
    """Marks the rows for which the condition is true. `reason` is a text, or a column that makes one."""
    said = reason if isinstance(reason, Column) else F.lit(reason)
    return mark(rows, F.when(as_column(condition), said))


def route(rows: DataFrame, topic: str | Column) -> DataFrame:
    """Sends each row to the topic that an expression gives, as in "concat('orders-', data.country)".

    Where it gives null, the row goes to the transform's `to`.
    """
    return rows.withColumn("topic", as_column(topic))


def as_column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression
