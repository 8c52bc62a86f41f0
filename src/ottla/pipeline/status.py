"""How far each stage is, read from its checkpoint and the cluster: no Spark is needed, and nothing has to run."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ottla.pipeline.config import Declared, Pipeline
from ottla.pipeline.progress import Offsets, behind, topic_offsets

FILE_SCHEME = "file://"


class Checkpoint(NamedTuple):
    """`batch` is the last one that is committed; `unfinished` the one that the next start does again."""

    batch: int | None
    unfinished: int | None
    at: datetime | None
    offsets: tuple[Any, ...]


class StageStatus(NamedTuple):
    stage: str
    kind: str
    state: str
    batch: int | None
    at: str | None
    # One for each source of its query: offsets of topics, or what the source counts in.
    done: list[Any]
    behind: int | None


def statuses(pipeline: Pipeline, end_offsets: "EndOffsets") -> list[StageStatus]:
    return [
        status_of(item, pipeline.context.checkpoint(item.name), end_offsets) for item in pipeline.declared
    ]


class EndOffsets:
    """The ends of topics, asked of the cluster when they are needed; None where it does not answer."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._cluster = pipeline.context.cluster
        self.problem: str | None = None

    def of(self, topics: set[str]) -> Offsets | None:
        from ottla.admin.cluster import ClusterError
        from ottla.pipeline.errors import PipelineError
        from ottla.pipeline.topics import connect, end_offsets

        if self.problem is not None:
            return None
        try:
            return end_offsets(connect(self._cluster), topics)
        except (PipelineError, ClusterError) as error:
            self.problem = str(error)
            return None


def status_of(item: Declared, folder: str, ends: EndOffsets) -> StageStatus:
    path = local_path(folder)
    kind = item.kind if item.group != "transforms" else "transform"
    if path is None:
        state = f"its checkpoint {folder} can only be read with Spark"
        return StageStatus(item.name, kind, state, None, None, [], None)
    checkpoint = read_checkpoint(path)
    offsets = [topic_offsets(offset) for offset in checkpoint.offsets]
    return StageStatus(
        item.name,
        kind,
        state_of(checkpoint),
        checkpoint.batch,
        checkpoint.at.isoformat(timespec="seconds") if checkpoint.at else None,
        [raw if known is None else known for raw, known in zip(checkpoint.offsets, offsets, strict=True)],
        records_behind([known for known in offsets if known is not None], ends),
    )


def state_of(checkpoint: Checkpoint) -> str:
    if checkpoint.unfinished is not None:
        return f"batch {checkpoint.unfinished} at work, or to be done again"
    return "not started yet" if checkpoint.batch is None else "all batches committed"


def records_behind(done: list[Offsets], ends: EndOffsets) -> int | None:
    topics = {topic for offsets in done for topic in offsets}
    latest = ends.of(topics) if topics else None
    if latest is None:
        return None
    merged: Offsets = {}
    for offsets in done:
        merged.update(offsets)
    return behind(merged, latest)


def local_path(folder: str) -> Path | None:
    if folder.startswith(FILE_SCHEME):
        return Path(folder.removeprefix(FILE_SCHEME))
    return None if "://" in folder else Path(folder)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Spark writes offsets/N before batch N and commits/N after it."""
    planned, committed = last_number(folder / "offsets"), last_number(folder / "commits")
    unfinished = planned if planned is not None and planned != committed else None
    if committed is None:
        return Checkpoint(None, unfinished, None, ())
    at = datetime.fromtimestamp((folder / "commits" / str(committed)).stat().st_mtime, UTC)
    return Checkpoint(committed, unfinished, at, tuple(offsets_in(folder / "offsets" / str(committed))))


def last_number(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=None)


def offsets_in(file: Path) -> list[Any]:
    """A version, the batch's settings, then a line for each source; `-` is a source that gave nothing yet."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()[2:]
    except FileNotFoundError:
        return []
    return [parsed(line) for line in lines if line != "-"]


def parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line
