"""Keeps, rejects and routes records by a condition or an expression."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.transform.columns import error_of, mark


def keep(rows: DataFrame, condition: str | Column) -> DataFrame:
    """The rows for which the condition is true, and all marked rows: Spark's own `filter` would lose dead letters."""
    return rows.filter(_as_column(condition) | error_of(rows).isNotNull())


def reject(rows: DataFrame, condition: str | Column, reason: str | Column) -> DataFrame:
    """Marks the rows for which the condition is true. `reason` is a text, or a column with one."""
    text = reason if isinstance(reason, Column) else F.lit(reason)
    return mark(rows, F.when(_as_column(condition), text))


def route(rows: DataFrame, topic: str | Column) -> DataFrame:
    """Sends each row to the topic that an expression names, as in "concat('orders-', data.country)".

    A row for which it is null goes to the transform's `to`.
    """
    return rows.withColumn("topic", _as_column(topic))


def _as_column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression
