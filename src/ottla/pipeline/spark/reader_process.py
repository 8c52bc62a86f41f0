"""The process that Spark starts for the reader of a stream, and its end.

When a query stops, Spark closes its connection to that process. Spark's code in it then tries to send its last message,
fails, and Python would print the stack trace on the user's terminal, although nothing is wrong.
"""

import sys
from types import TracebackType

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class QueryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The base of all stream readers. A closed connection to Spark ends their process without a stack trace."""

    def stop(self) -> None:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == RUNNER:
            sys.excepthook = _ignore_closed_connection


def _ignore_closed_connection(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, BrokenPipeError | ConnectionResetError):
        sys.__excepthook__(kind, error, trace)
