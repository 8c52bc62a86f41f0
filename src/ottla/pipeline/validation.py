"""Everything that would stop a pipeline, asked of the real cluster, paths and databases before anything starts."""

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
from ottla.pipeline.stage import Problem, Stage
from ottla.pipeline.status import local_path
from ottla.pipeline.topics import connect, topic_problems

CLUSTER = "[cluster]"
CONNECT_TIMEOUT_S = 3.0


def check_pipeline(pipeline: Pipeline, only: str | None = None, master: str | None = None) -> list[Problem]:
    """All of them, not only the first. Stages are asked side by side: a database that is away takes its time.

    Where the cluster is away the stages are not asked: each would only say the same.
    """
    stages = pipeline.stages(only)
    found = [*spark_problems(master or pipeline.spark.master), *checkpoint_problems(pipeline, master)]
    found += cluster_problems(pipeline)
    if any(problem.where == CLUSTER for problem in found):
        return found
    with ThreadPoolExecutor(max_workers=max(len(stages), 1)) as pool:
        for problems in pool.map(stage_problems, stages.values()):
            found += problems
    return found


def stage_problems(stage: Stage) -> list[Problem]:
    """A stage that cannot even be asked has a problem too."""
    where = f"stage {stage.name}"
    found: list[Problem] = []
    try:
        for problem in stage.problems():
            found.append(problem)  # noqa: PERF402 - what was found before an error counts
    except PipelineError as error:
        found.append(Problem(where, error.what, error.remedy))
    except Exception as error:
        found.append(Problem(where, f"{type(error).__name__}: {error}.", "Mend that, and validate again."))
    return found


def cluster_problems(pipeline: Pipeline) -> Iterator[Problem]:
    try:
        yield from topic_problems(connect(pipeline.context.cluster), pipeline.topics)
    except PipelineError as error:
        yield Problem(CLUSTER, error.what, error.remedy)
    except ClusterError as error:
        yield Problem("[topics]", f"{error}.", "Mend that, and validate again.")


def spark_problems(master: str) -> Iterator[Problem]:
    if importlib.util.find_spec("pyspark") is None:
        yield Problem("[spark]", "pyspark is not installed.", "Install it: pip install 'ottla[spark]'.")
        return
    from ottla.pipeline.spark.java import ensure_java

    try:
        ensure_java(dict(os.environ))
    except PipelineError as error:
        yield Problem("[spark]", error.what, error.remedy)
    if master.startswith("spark://"):
        yield from master_problems(master)


def master_problems(master: str) -> Iterator[Problem]:
    address = urlsplit(master)
    try:
        with socket.create_connection((address.hostname or "", address.port or 7077), CONNECT_TIMEOUT_S):
            return
    except (OSError, ValueError) as error:
        yield Problem(
            "[spark]", f"No Spark master answers at {master}: {error}.", "Start it, or mend `master`."
        )


def checkpoint_problems(pipeline: Pipeline, master: str | None) -> Iterator[Problem]:
    folder = pipeline.context.path(pipeline.context.checkpoints)
    path = local_path(folder)
    if path is None:
        return
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Problem(
            "[spark]",
            f"The checkpoints' folder {path} cannot be written: {nearest} {_why(nearest)}.",
            "Give it the rights, or name another folder as `checkpoints`.",
        )
    if not (master or pipeline.spark.master).startswith("local"):
        yield Problem(
            "[spark]",
            f"The checkpoints' folder {path} is on this machine.",
            "On a cluster, name one that all its machines see under that path, such as s3a:// or hdfs://.",
            is_warning=True,
        )


def _why(nearest: Path) -> str:
    return "is no folder" if not nearest.is_dir() else "does not let you write"
