"""What an archive holds, by its manifests: a file counts only once a manifest names it.

A batch's manifest lists the files that it added and the offsets that it covers. A merge's manifest lists files and
those whose place they take. Both are written whole or not at all, so every reader sees each record once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.pipeline.archive.layout import Hour, hour_of
from ottla.pipeline.archive.ranges import spans_by_partition, united
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import OffsetRange, Offsets

VERSION = 1


@dataclass(frozen=True)
class Slice:
    """What a file holds of one partition: the first and the last offset, and how many records."""

    first: int
    last: int
    records: int


@dataclass(frozen=True)
class DataFile:
    """One Parquet file; `path` is relative to the archive."""

    path: str
    bytes: int
    slices: Mapping[int, Slice]

    @property
    def hour(self) -> Hour:
        return hour_of(self.path)

    @property
    def topic(self) -> str:
        return self.hour.topic

    @property
    def records(self) -> int:
        return sum(one.records for one in self.slices.values())


@dataclass(frozen=True)
class Batch:
    """The manifest of a micro-batch; `query_id` is that of the checkpoint under which it ran."""

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class Merge:
    """The manifest of a merge: `files` take the place of those whose paths are in `supersedes`."""

    number: int
    merged_at_ms: int
    files: tuple[DataFile, ...]
    supersedes: tuple[str, ...]


@dataclass(frozen=True)
class Archived:
    """All manifests together: the files that count, and what the batches cover."""

    files: Mapping[str, DataFile] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    merges: tuple[Merge, ...] = ()

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.ranges})

    @property
    def ends(self) -> Offsets:
        """The offset behind the last one that is covered, of each partition."""
        ends: Offsets = {}
        for one in self.ranges:
            ends[one.at] = max(one.end, ends.get(one.at, 0))
        return ends

    @property
    def starts(self) -> Offsets:
        return {at: united(spans)[0].start for at, spans in spans_by_partition(self.ranges).items()}

    def files_of(self, topic: str) -> list[DataFile]:
        return sorted(
            (file for file in self.files.values() if file.topic == topic), key=lambda file: file.path
        )


def combined(batches: Sequence[Batch], merges: Sequence[Merge]) -> Archived:
    files = {file.path: file for batch in batches for file in batch.files}
    ranges = tuple(sorted(one for batch in batches for one in batch.ranges))
    in_order = tuple(sorted(merges, key=lambda merge: merge.number))
    for merge in in_order:
        # A merge supersedes files of batches or of earlier merges, each of which only one merge can have taken.
        for path in merge.supersedes:
            files.pop(path, None)
        files.update({file.path: file for file in merge.files})
    return Archived(files, ranges, in_order)


def to_json(manifest: Batch | Merge) -> str:
    content: dict[str, Any] = {"version": VERSION}
    if isinstance(manifest, Batch):
        content |= {"query": manifest.query_id, "batch": manifest.batch_id}
        content["ranges"] = [list(one) for one in manifest.ranges]
    else:
        content |= {"merge": manifest.number, "merged_at_ms": manifest.merged_at_ms}
        content["supersedes"] = list(manifest.supersedes)
    content["files"] = [file_to_json(file) for file in manifest.files]
    return json.dumps(content, indent=1)


def file_to_json(file: DataFile) -> dict[str, Any]:
    slices = {
        str(partition): {"first": one.first, "last": one.last, "records": one.records}
        for partition, one in sorted(file.slices.items())
    }
    return {"path": file.path, "bytes": file.bytes, "records": file.records, "partitions": slices}


def from_json(text: str, where: str) -> Batch | Merge:
    """`where` is the manifest's full path, for the error when it is damaged."""
    try:
        content = json.loads(text)
        version = content["version"]
        if version == VERSION:
            return _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(
            f"The manifest {where} is damaged: {type(error).__name__}: {error}.",
            "Put it back from a copy of the archive. Without it the files that it names are not counted as archived; "
            "removing it leaves a hole that `ottla pipeline verify` names.",
        ) from None
    raise PipelineError(
        f"The manifest {where} has version {version}, which this Ottla does not know.", "Use a newer Ottla."
    )


def _parsed(content: Mapping[str, Any]) -> Batch | Merge:
    files = tuple(_file(item) for item in content["files"])
    if "merge" in content:
        return Merge(int(content["merge"]), int(content["merged_at_ms"]), files, tuple(content["supersedes"]))
    ranges = tuple(
        OffsetRange(str(topic), int(partition), int(start), int(end))
        for topic, partition, start, end in content["ranges"]
    )
    return Batch(str(content["query"]), int(content["batch"]), ranges, files)


def _file(item: Mapping[str, Any]) -> DataFile:
    slices = {
        int(partition): Slice(int(one["first"]), int(one["last"]), int(one["records"]))
        for partition, one in item["partitions"].items()
    }
    return DataFile(str(item["path"]), int(item["bytes"]), slices)
