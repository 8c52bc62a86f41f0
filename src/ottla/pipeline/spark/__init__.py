"""The connector `format("ottla")`: reads topics as DataFrames and streams, and writes DataFrames to topics.

`spark_session` starts Spark with the connector; `exactly_once` writes a stream so that every row arrives once. The
stages of the pipeline also use `checkpoint`, `discovery`, `java`, `offsets`, `rows` and `sink.plan`. The other modules
are internal.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.spark.session import spark_session
    from ottla.pipeline.spark.sink.exactly_once import exactly_once

__all__ = ["exactly_once", "spark_session"]

_MODULES = {
    "exactly_once": "ottla.pipeline.spark.sink.exactly_once",
    "spark_session": "ottla.pipeline.spark.session",
}


def __getattr__(name: str) -> Any:
    # Executors import this package for every source, so what only a driver needs is imported at its first use.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
