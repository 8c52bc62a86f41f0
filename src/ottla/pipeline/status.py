"""How far each stage is, from its checkpoint and the cluster. Needs no Spark, and the pipeline need not run.

A checkpoint on s3a:// or hdfs:// is read by Hadoop's client in a Java without Spark.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.pipeline.config import Pipeline, StageDeclaration
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import files_at, root_cause
from ottla.pipeline.progress import TopicOffsets, records_behind, topic_offsets
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Guard, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_SCHEME = "file://"


class StageStatus(NamedTuple):
    """`batch` is the last one that is committed, `at` the time of its commit."""

    stage: str
    kind: str
    state: str
    batch: int | None
    at: str | None
    # one entry for each source of the query: offsets of topics, or the offset in the source's own form
    done: list[Any]
    behind: int | None
    # sentences about records that will be lost soon, or are lost already
    risks: Sequence[str] = ()


def statuses(pipeline: Pipeline, end_offsets: "EndOffsets") -> list[StageStatus]:
    stages = pipeline.stages()
    lines = []
    with _client_for(pipeline) as client:
        for item in pipeline.declared:
            status = status_of(item, pipeline.context.checkpoint(item.name), end_offsets, client)
            lines.append(status._replace(risks=end_offsets.risks_of(stages[item.name], client)))
    return lines


@contextlib.contextmanager
def _client_for(pipeline: Pipeline) -> "Iterator[SparkSession | None]":
    """None if the checkpoints are local."""
    if local_path(pipeline.context.path(pipeline.context.checkpoints)) is not None:
        yield None
        return
    from ottla.pipeline.hadoop_client import hadoop_client

    with hadoop_client(pipeline) as client:
        yield client


class EndOffsets:
    """Asks the cluster about topics. After the first error it asks no more and `error` is set."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._cluster = pipeline.context.cluster
        self.error: str | None = None

    def of(self, topics: set[str]) -> TopicOffsets | None:
        """None if the cluster does not respond."""
        from ottla.admin.cluster import ClusterError
        from ottla.pipeline.topics import connect, end_offsets

        if self.error is not None:
            return None
        try:
            return end_offsets(connect(self._cluster), topics)
        except (PipelineError, ClusterError) as error:
            self.error = str(error)
            return None

    def risks_of(self, stage: Stage, client: "SparkSession | None" = None) -> list[str]:
        """Empty if the cluster does not respond."""
        from ottla.admin.cluster import ClusterError

        if self.error is not None or not isinstance(stage, Guard):
            return []
        try:
            return stage.risks(client)
        except (PipelineError, ClusterError) as error:
            self.error = str(error)
            return []


def status_of(
    item: StageDeclaration, folder: str, ends: EndOffsets, client: "SparkSession | None" = None
) -> StageStatus:
    """`folder` is the stage's checkpoint; one that is not local needs a client of Hadoop."""
    kind = item.kind if item.group != "transforms" else "transform"
    with _explained(folder):
        files = files_at(folder, client)
        checkpoint = Checkpoint(files)
        committed, planned = checkpoint.last_committed(), checkpoint.last_planned()
        at = None if committed is None else _as_text(files.modified_s(f"commits/{committed}"))
        done = [] if committed is None else checkpoint.source_offsets(committed)
    offsets = [topic_offsets(offset) for offset in done]
    return StageStatus(
        item.name,
        kind,
        _state_of(planned, committed),
        committed,
        at,
        [raw if known is None else known for raw, known in zip(done, offsets, strict=True)],
        _behind_of([known for known in offsets if known is not None], ends),
    )


@contextlib.contextmanager
def _explained(folder: str) -> Iterator[None]:
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError) as error:
        raise PipelineError(
            f"The checkpoint {folder} cannot be read: {root_cause(error)}.",
            "Check the path and its permissions; if it is not local, also its address and credentials in `conf` of "
            "[spark].",
        ) from None


def _as_text(modified_s: float) -> str:
    return datetime.fromtimestamp(modified_s, UTC).isoformat(timespec="seconds")


def _state_of(planned: int | None, committed: int | None) -> str:
    if planned is not None and planned != committed:
        return f"batch {planned} is running, or runs again at the next start"
    return "not started yet" if committed is None else "all batches committed"


def _behind_of(done: list[TopicOffsets], ends: EndOffsets) -> int | None:
    topics = {topic for offsets in done for topic in offsets}
    latest = ends.of(topics) if topics else None
    if latest is None:
        return None
    merged: TopicOffsets = {}
    for offsets in done:
        merged.update(offsets)
    return records_behind(merged, latest)


def local_path(folder: str) -> Path | None:
    """None if the folder is a URL of another file system."""
    if folder.startswith(_FILE_SCHEME):
        return Path(folder.removeprefix(_FILE_SCHEME))
    return None if "://" in folder else Path(folder)
