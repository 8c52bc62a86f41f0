"""Decides whether DuckDB can answer a query of archives, or only Spark."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from pyarrow import ArrowException

from ottla.pipeline.archive.filesystem import readable_files
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.errors import PipelineError


def why_not_duckdb(paths: Iterable[str], options: Mapping[str, str]) -> str | None:
    """Why DuckDB cannot answer a query of the archives at these paths; None if it can.

    `options` are Hadoop's settings in the file. Spark may have others, as for the credentials of a bucket: so a path
    that is not local is tried.
    """
    if find_spec("duckdb") is None:
        return "DuckDB is not installed (pip install 'ottla[sql]')"
    for path in paths:
        try:
            readable_files(path, options).names(MANIFESTS)
        except (OSError, ArrowException, PipelineError):
            return f"Python cannot read {path}"
    return None
