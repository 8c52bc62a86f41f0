"""How far each stage is, from its checkpoint and the cluster. Needs no Spark, and the pipeline need not run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ottla.pipeline.config import Pipeline, StageDeclaration
from ottla.pipeline.progress import TopicOffsets, records_behind, topic_offsets
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.stage import Guard, Stage

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
    for item in pipeline.declared:
        status = status_of(item, pipeline.context.checkpoint(item.name), end_offsets)
        lines.append(status._replace(risks=end_offsets.risks_of(stages[item.name])))
    return lines


class EndOffsets:
    """Asks the cluster about topics. After the first error it asks no more and `error` is set."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._cluster = pipeline.context.cluster
        self.error: str | None = None

    def of(self, topics: set[str]) -> TopicOffsets | None:
        """None if the cluster does not respond."""
        from ottla.admin.cluster import ClusterError
        from ottla.pipeline.errors import PipelineError
        from ottla.pipeline.topics import connect, end_offsets

        if self.error is not None:
            return None
        try:
            return end_offsets(connect(self._cluster), topics)
        except (PipelineError, ClusterError) as error:
            self.error = str(error)
            return None

    def risks_of(self, stage: Stage) -> list[str]:
        """Empty if the cluster does not respond."""
        from ottla.admin.cluster import ClusterError
        from ottla.pipeline.errors import PipelineError

        if self.error is not None or not isinstance(stage, Guard):
            return []
        try:
            return stage.risks()
        except (PipelineError, ClusterError) as error:
            self.error = str(error)
            return []


def status_of(item: StageDeclaration, folder: str, ends: EndOffsets) -> StageStatus:
    """`folder` is the stage's checkpoint."""
    path = local_path(folder)
    kind = item.kind if item.group != "transforms" else "transform"
    if path is None:
        state = f"its checkpoint {folder} can only be read with Spark"
        return StageStatus(item.name, kind, state, None, None, [], None)
    checkpoint = Checkpoint.at(str(path))
    committed = checkpoint.last_committed()
    at = None if committed is None else _commit_time(path, committed)
    done = [] if committed is None else checkpoint.source_offsets(committed)
    offsets = [topic_offsets(offset) for offset in done]
    return StageStatus(
        item.name,
        kind,
        _state_of(checkpoint.last_planned(), committed),
        committed,
        at,
        [raw if known is None else known for raw, known in zip(done, offsets, strict=True)],
        _behind_of([known for known in offsets if known is not None], ends),
    )


def _commit_time(checkpoint: Path, batch_id: int) -> str:
    modified_s = (checkpoint / "commits" / str(batch_id)).stat().st_mtime
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
