"""The class of each kind of stage. It is imported only if a pipeline has a stage of that kind."""

import importlib
from typing import Any

from ottla.pipeline.errors import PipelineError

STAGE_CLASSES = {
    "sources": {
        "spooldir": "ottla.pipeline.ingest.spooldir.stage:SpoolDirSource",
        "mysql": "ottla.pipeline.ingest.cdc.mysql.stage:MySqlSource",
        "postgres": "ottla.pipeline.ingest.cdc.postgres.stage:PostgresSource",
        "archive": "ottla.pipeline.ingest.reload.stage:ArchiveSource",
    },
    "transforms": {"transform": "ottla.pipeline.transform.stage:Transform"},
    "sinks": {"archive": "ottla.pipeline.archive.stage:ArchiveSink"},
}
STAGE_GROUPS = tuple(STAGE_CLASSES)
# The extra that installs a package, by the name under which the package is imported.
_EXTRAS = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "pymysql": "cdc",
    "pymysqlreplication": "cdc",
    "psycopg2": "cdc",
}


def load_stage_class(group: str, kind: Any) -> tuple[str, Any]:
    """The kind and its class. `kind` may be None in a group that has only one."""
    known = STAGE_CLASSES[group]
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
        if package not in _EXTRAS:
            raise
        raise PipelineError(
            f"The kind `{kind}` needs the package {package}, which is not installed.",
            f"Install it: pip install 'ottla[{_EXTRAS[package]}]'.",
        ) from None
