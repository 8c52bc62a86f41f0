"""The connector `format("ottla")`: reads topics as DataFrames and streams, and writes DataFrames to topics.

`exactly_once` writes a stream so that every row arrives once; `session` starts Spark with the connector. The stages of
the pipeline also use `checkpoint`, `discovery`, `offsets` and `rows`. The other modules are internal.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.spark.sink.exactly_once import exactly_once

__all__ = ["exactly_once"]


def __getattr__(name: str) -> Any:
    # Executors import this package for every source, so what only a driver needs is imported at its first use.
    if name == "exactly_once":
        from ottla.pipeline.spark.sink.exactly_once import exactly_once

        return exactly_once
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
