"""Checks the cluster, paths and databases of a pipeline for everything that would stop it, before anything starts."""

import importlib.util
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from ottla.admin.cluster import ClusterError
from ottla.pipeline.config import Pipeline
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.stage import Finding, Stage
from ottla.pipeline.status import local_path
from ottla.pipeline.topics import check_topics, connect

_CLUSTER = "[cluster]"
_CONNECT_TIMEOUT_S = 3.0


def check_pipeline(pipeline: Pipeline, only: str | None = None, master: str | None = None) -> list[Finding]:
    """All errors and warnings. Stages are checked in parallel, because a database that does not respond takes long.

    They are not checked if the cluster does not respond: each would only report the same.
    """
    stages = pipeline.stages(only)
    found = [*_check_spark(master or pipeline.spark.master), *check_checkpoints(pipeline, master)]
    found += _check_cluster(pipeline)
    if any(finding.where == _CLUSTER for finding in found):
        return found
    with ThreadPoolExecutor(max_workers=max(len(stages), 1)) as pool:
        for findings in pool.map(check_stage, stages.values()):
            found += findings
    return found


def check_stage(stage: Stage) -> list[Finding]:
    """An error that the check itself raises is reported too."""
    where = f"stage {stage.name}"
    found: list[Finding] = []
    try:
        for finding in stage.check():
            found.append(finding)  # noqa: PERF402 - keeps what was found before an error
    except PipelineError as error:
        found.append(Finding(where, error.what, error.remedy))
    except Exception as error:
        found.append(Finding(where, f"{type(error).__name__}: {error}.", "Fix that, and validate again."))
    return found


def _check_cluster(pipeline: Pipeline) -> Iterator[Finding]:
    try:
        yield from check_topics(connect(pipeline.context.cluster), pipeline.topics)
    except PipelineError as error:
        yield Finding(_CLUSTER, error.what, error.remedy)
    except ClusterError as error:
        yield Finding("[topics]", f"{error}.", "Fix that, and validate again.")


def _check_spark(master: str) -> Iterator[Finding]:
    if importlib.util.find_spec("pyspark") is None:
        yield Finding("[spark]", "pyspark is not installed.", "Install it: pip install 'ottla[spark]'.")
        return
    from ottla.pipeline.spark.java import ensure_java

    try:
        ensure_java(dict(os.environ))
    except PipelineError as error:
        yield Finding("[spark]", error.what, error.remedy)
    if master.startswith("spark://"):
        yield from check_master(master)


def check_master(master: str) -> Iterator[Finding]:
    address = urlsplit(master)
    try:
        with socket.create_connection((address.hostname or "", address.port or 7077), _CONNECT_TIMEOUT_S):
            return
    except (OSError, ValueError) as error:
        yield Finding(
            "[spark]", f"No Spark master responds at {master}: {error}.", "Start it, or fix `master`."
        )


def check_checkpoints(pipeline: Pipeline, master: str | None) -> Iterator[Finding]:
    folder = pipeline.context.path(pipeline.context.checkpoints)
    path = local_path(folder)
    if path is None:
        return
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(
            "[spark]",
            f"The checkpoints' folder {path} cannot be written: {nearest} {_why(nearest)}.",
            "Allow this user to write there, or set `checkpoints` to another folder.",
        )
    if not (master or pipeline.spark.master).startswith("local"):
        yield Finding(
            "[spark]",
            f"The checkpoints' folder {path} is on this machine.",
            "On a cluster, set `checkpoints` to a path that all machines see, such as s3a:// or hdfs://.",
            is_warning=True,
        )


def _why(nearest: Path) -> str:
    return "is not a folder" if not nearest.is_dir() else "is not writable for this user"
