"""Whether a plan gives the same rows in the same partitions when it runs again, and what tells it from another plan."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.pipeline.spark.sink.source_options import OPTIONS, source_text


class Operator(NamedTuple):
    """One operator of an analyzed plan. `random` are its expressions that Catalyst calls nondeterministic."""

    kind: str
    depth: int
    text: str
    random: tuple[str, ...] = ()
    # of a repartition: whether rows move by what is in them, and to how many partitions
    is_by_value: bool = True
    partitions: int = 1


# Which rows these let through depends on which arrive first.
FIRST_COME = {"GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample"}
# Spark leaves out those of wide rows otherwise.
ALL_FIELDS = 2**31 - 1
SOURCE = "StreamingRelationV2"
REPARTITIONS = {"Repartition", "RepartitionByExpression", "RebalancePartitions"}


def find_nondeterminism(operators: Iterable[Operator]) -> tuple[str, str] | None:
    """What is not the same in a second run, and what to do about it; None for a plan that can be run again."""
    for operator in operators:
        if operator.random:
            return (
                f"`{operator.random[0]}` may give something else when a batch runs again.",
                "Compute it from the columns, or before the rows reach the source's topic. A function of yours that"
                " always gives the same must not be marked as nondeterministic.",
            )
        if operator.kind in FIRST_COME:
            return (
                f"`{operator.text}` lets through the rows that happen to come first.",
                "Choose rows by a condition on their columns.",
            )
        if operator.kind in REPARTITIONS and not operator.is_by_value and operator.partitions != 1:
            return (
                f"`{operator.text}` deals rows out in turn, so they may be in other partitions when a batch runs"
                " again.",
                "Repartition by a column, as in repartition(8, 'key').",
            )
    return None


# What differs between two runs of one program: numbers of lambda variables, ids of expressions, identities of objects.
VOLATILE = re.compile(r"_\d+(?=#\d)|#\d+L?|@[0-9a-f]+\b|\b0x[0-9a-f]+\b")


def fingerprint(operators: Iterable[Operator]) -> str:
    """Of an analyzed plan. The code of a Python function is not part of it, its name is; of our own sources only what
    decides about rows is (`source_options`), of others all options."""
    lines = (f"{operator.depth} {VOLATILE.sub('', operator.text)}" for operator in operators)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def operators_of(plan: Any, depth: int = 0) -> Iterator[Operator]:
    """The operators of Catalyst's plan, from the top."""
    kind = plan.getClass().getSimpleName()
    random = tuple(
        text for expression in items(plan.expressions()) for text in random_expressions(expression)
    )
    is_by_value, partitions = True, 1
    if kind == "Repartition":
        is_by_value, partitions = False, plan.numPartitions()
    elif kind in REPARTITIONS:
        is_by_value, partitions = not plan.partitionExpressions().isEmpty(), 0
    yield Operator(kind, depth, text_of(plan, kind), random, is_by_value, partitions)
    for child in items(plan.children()):
        yield from operators_of(child, depth + 1)


def text_of(plan: Any, kind: str) -> str:
    if kind == SOURCE and plan.sourceName() in OPTIONS:
        columns = [attribute.name() for attribute in items(plan.output())]
        return source_text(plan.sourceName(), dict(plan.extraOptions()), columns)
    return str(plan.simpleString(ALL_FIELDS)).lstrip("~")


def random_expressions(expression: Any) -> Iterator[str]:
    """The innermost ones, as SQL: `rand(7)` rather than the whole column that it stands in."""
    if expression.deterministic():
        return
    inner = [text for child in items(expression.children()) for text in random_expressions(child)]
    yield from inner or [expression.sql()]


def items(sequence: Any) -> Iterator[Any]:
    for position in range(sequence.size()):
        yield sequence.apply(position)
