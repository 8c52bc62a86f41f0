"""Which class is behind each kind of stage. A class is imported only where a pipeline asks for its kind."""

import importlib
from typing import Any

from ottla.pipeline.errors import PipelineError

KINDS = {
    "sources": {
        "spooldir": "ottla.pipeline.ingest.spooldir.stage:SpoolDirSource",
        "mysql": "ottla.pipeline.ingest.cdc.stage:MySqlSource",
        "postgres": "ottla.pipeline.ingest.cdc.stage:PostgresSource",
        "archive": "ottla.pipeline.ingest.reload.stage:ArchiveSource",
    },
    "transforms": {"transform": "ottla.pipeline.transform.stage:Transform"},
    "sinks": {"archive": "ottla.pipeline.archive.stage:ArchiveSink"},
}
GROUPS = tuple(KINDS)
# What is installed with an extra, by the name under which it is imported.
EXTRAS = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "pymysql": "cdc",
    "pymysqlreplication": "cdc",
    "psycopg2": "cdc",
}


def stage_class(group: str, kind: Any) -> tuple[str, Any]:
    """The kind and its class. A group of one kind needs no `kind`."""
    known = KINDS[group]
    if kind is None and len(known) == 1:
        kind = next(iter(known))
    if kind is None:
        raise PipelineError("It has no `kind`.", f"Choose one of: {', '.join(known)}.")
    if kind not in known:
        raise PipelineError(f"There is no kind {kind!r} of {group}.", f"Choose one of: {', '.join(known)}.")
    module, _, name = known[kind].partition(":")
    try:
        return kind, getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise PipelineError(
            f"The kind `{kind}` needs the package {package}, which is not installed.",
            f"Install it: pip install 'ottla[{EXTRAS[package]}]'.",
        ) from None
