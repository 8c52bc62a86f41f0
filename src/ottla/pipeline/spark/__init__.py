"""The connector `format("ottla")`: topics as DataFrames and streams, and DataFrames into topics, also exactly once."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.spark.sink.exactly_once import exactly_once

__all__ = ["exactly_once"]


def __getattr__(name: str) -> Any:
    # Executors import this package for every source: what only a driver needs is loaded when it is asked for.
    if name == "exactly_once":
        from ottla.pipeline.spark.sink.exactly_once import exactly_once

        return exactly_once
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
