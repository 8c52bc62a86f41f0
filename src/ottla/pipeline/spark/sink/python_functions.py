"""Finds the Python functions in the expressions of a Spark plan."""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.pipeline.spark.sink.code import code_fingerprint

_FUNCTION = "PythonUDF"


class PythonFunctions:
    def __init__(self, jvm: Any) -> None:
        self._pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
        self._bytes = jvm.scala.reflect.ClassTag.Byte()

    def fingerprints(self, expressions: Iterable[Any]) -> Iterator[str]:
        """Of the code of every function in the expressions. Spark knows cheaply which of them have one."""
        for expression in expressions:
            if expression.containsPattern(self._pattern):
                if expression.getClass().getSimpleName() == _FUNCTION:
                    yield code_of_command(expression.func().command().toArray(self._bytes))
                yield from self.fingerprints(scala_items(expression.children()))


def code_of_command(command: bytes) -> str:
    """Of a function as Spark sends it to its workers. Empty if it cannot be loaded: Spark broadcasts a large one."""
    from pyspark.serializers import CPickleSerializer

    try:
        function, *_ = CPickleSerializer().loads(command)  # type: ignore[no-untyped-call]
    except Exception:
        return ""
    return code_fingerprint(function)


def scala_items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala Seq."""
    for position in range(sequence.size()):
        yield sequence.apply(position)
