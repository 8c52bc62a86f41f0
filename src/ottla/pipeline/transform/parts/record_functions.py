"""Calls a Python function for each record. An error that it raises marks the record, and does not stop the batch.

A call for each record is slow: use it only for what expressions on columns cannot do.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType, _make_type_verifier, _parse_datatype_string

from ottla.pipeline.transform.columns import error_of, mark


def guard(
    rows: DataFrame,
    function: Callable[..., Any],
    returns: str | DataType,
    *,
    columns: Sequence[str] = ("value",),
    into: str = "data",
) -> DataFrame:
    """Adds the column `into` with the result of `function(*columns)`; `returns` is its type, as in "struct<id:long>".

    A record is marked if the function raises an error or returns another type. It is not called for marked records.
    It must return the same for the same arguments: the exactly-once sink relies on that.
    """
    kind = _parse_datatype_string(returns) if isinstance(returns, str) else returns
    both = StructType().add("result", kind).add("error", StringType())
    call = F.udf(guarded(function, kind), both, useArrow=True)
    arguments: list[Column] = [error_of(rows).isNotNull(), *(F.col(name) for name in columns)]
    called = rows.withColumn(into, call(*arguments))
    return mark(called, F.col(f"{into}.error")).withColumn(into, F.col(f"{into}.result"))


def guarded(function: Callable[..., Any], kind: DataType) -> Callable[..., tuple[Any, str | None]]:
    verify = _make_type_verifier(kind)

    def call(is_marked: bool, *arguments: Any) -> tuple[Any, str | None]:
        if is_marked:
            return None, None
        try:
            result = function(*arguments)
            verify(result)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        return result, None

    return call
