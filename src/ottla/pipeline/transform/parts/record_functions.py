"""A Python function called once for each record: what it raises becomes the record's reason, not the end of the batch.

This is the slow way, by its nature: use it for what columns cannot say.
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
    """Adds the column `into` of type `returns` ("struct<id:long,total:double>") with what `function(*columns)` gives.

    A record for which it raises, or gives something that is not of the type, is marked. Marked records are not given
    to it. The function must give the same for the same arguments, or exactly once is lost.
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
