"""Decides from a query's plan whether a batch that runs again has the same rows in the same Spark partitions."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.pipeline.spark.sink.python_functions import PythonFunctions, scala_items
from ottla.pipeline.spark.sink.source_options import OPTIONS, source_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Operator(NamedTuple):
    """One operator of an analyzed plan. `random` are its expressions that Catalyst calls nondeterministic.

    `code` are the fingerprints of its Python functions.
    """

    kind: str
    depth: int
    text: str
    random: tuple[str, ...] = ()
    # of a repartition: whether the values of a row decide its partition, and the number of partitions
    is_by_value: bool = True
    partitions: int = 1
    code: tuple[str, ...] = ()


_SOURCE = "StreamingRelationV2"
_METRICS = "CollectMetrics"
_SOURCES = {_SOURCE, "StreamingRelation"}
_REPARTITIONS = {"Repartition", "RepartitionByExpression", "RebalancePartitions"}
# Which rows these operators keep depends on which rows arrive first.
_FIRST_COME = {"GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"}
# These leave every row in its Spark partition.
_IN_PLACE = {"Project", "Filter", "Generate", "SubqueryAlias", "View", _METRICS, "EventTimeWatermark"}
# Spark shortens the text of an operator with many fields, unless it is told to print them all.
_ALL_FIELDS = 2**31 - 1
# What differs between two runs of one program: numbers of lambda variables, ids of expressions, of objects and of
# watermarks.
_VOLATILE = re.compile(
    r"_\d+(?=#\d)|#\d+L?|@[0-9a-f]+\b|\b0x[0-9a-f]+\b"
    r"|(?<=^EventTimeWatermark )[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def find_nondeterminism(operators: Iterable[Operator]) -> tuple[str, str] | None:
    """What may differ when a batch runs again, and what to do about it; None if nothing can differ."""
    for operator in operators:
        if operator.random:
            return (
                f"`{operator.random[0]}` may give another value when a batch runs again.",
                "Compute it from the columns, or before the rows reach the source's topic. A function of yours that"
                " always returns the same for the same arguments must not be marked as nondeterministic.",
            )
        if operator.kind in _FIRST_COME:
            return (
                f"`{operator.text}` keeps the rows that happen to arrive first.",
                "Choose rows by a condition on their columns.",
            )
        if operator.kind in _REPARTITIONS and not operator.is_by_value and operator.partitions != 1:
            return (
                f"`{operator.text}` distributes rows in turn, so they may be in other partitions when a batch runs"
                " again.",
                "Repartition by a column, as in repartition(8, 'key').",
            )
    return None


def fingerprint(operators: Iterable[Operator]) -> str:
    """Identifies an analyzed plan.

    It includes the code of Python functions; of our own sources only the options that decide about rows
    (`source_options`), of others all options.
    """
    lines = (
        f"{operator.depth} {_VOLATILE.sub('', operator.text)} {' '.join(operator.code)}".rstrip()
        for operator in operators
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def in_place_fingerprint(operators: Iterable[Operator]) -> str | None:
    """The fingerprint of the source alone, if the plan leaves every row in its Spark partition; None otherwise.

    A batch that failed on one record is half written: other partitions have committed. The sink rejects another plan
    for the rest, because rows might have moved. Where they cannot move, corrected logic may write the rest.
    """
    others = [operator._replace(depth=0) for operator in operators if operator.kind not in _IN_PLACE]
    if len(others) != 1 or others[0].kind not in _SOURCES:
        return None
    return fingerprint(others)


def operators_of(rows: "DataFrame") -> list[Operator]:
    """The operators of the analyzed plan, from the top."""
    functions = PythonFunctions(rows.sparkSession._jvm)
    return list(_operators(rows._jdf.queryExecution().analyzed(), functions, depth=0))


def _operators(plan: Any, functions: PythonFunctions, depth: int) -> Iterator[Operator]:
    kind = plan.getClass().getSimpleName()
    random = tuple(
        text for expression in scala_items(plan.expressions()) for text in _random_expressions(expression)
    )
    is_by_value, partitions = True, 1
    if kind == "Repartition":
        is_by_value, partitions = False, plan.numPartitions()
    elif kind in _REPARTITIONS:
        is_by_value, partitions = not plan.partitionExpressions().isEmpty(), 0
    code = tuple(functions.fingerprints(scala_items(plan.expressions())))
    yield Operator(kind, depth, _text_of(plan, kind), random, is_by_value, partitions, code)
    for child in scala_items(plan.children()):
        yield from _operators(child, functions, depth + 1)


def _text_of(plan: Any, kind: str) -> str:
    if kind == _SOURCE and plan.sourceName() in OPTIONS:
        columns = [attribute.name() for attribute in scala_items(plan.output())]
        return source_text(plan.sourceName(), dict(plan.extraOptions()), columns)
    text = str(plan.simpleString(_ALL_FIELDS)).lstrip("~")
    # The last part of its text counts the DataFrames of the session, so it differs after each restart of a stage.
    return text.rpartition(", ")[0] if kind == _METRICS else text


def _random_expressions(expression: Any) -> Iterator[str]:
    """The innermost ones, as SQL: `rand(7)` instead of the whole column that contains it."""
    if expression.deterministic():
        return
    inner = [text for child in scala_items(expression.children()) for text in _random_expressions(child)]
    yield from inner or [expression.sql()]
