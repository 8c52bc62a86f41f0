"""The manifests of an archive. A file belongs to the archive only if a manifest names it.

Manifests are numbered, each is written completely or not at all, and only one of two writers gets a number: together
they are the archive's history, in one order. The manifest of a batch lists the files that it added and the offsets that
it covers, that of a merge the new files and those that they replace. A claim says which run archives the topics from
there on.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.layout import Hour, hour_of
from ottla.pipeline.archive.layout import topic_of as topic_of
from ottla.pipeline.archive.ranges import spans_by_partition, union
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.offsets import OffsetRange, Offsets

_VERSION = 1
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
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
    """The manifest of a micro-batch. `query_id` is that of its checkpoint.

    The topics of its ranges and files are histories. `topic_ids` has the topic id of each, if the cluster has ids.
    """

    query_id: str
    batch_id: int
    ranges: tuple[OffsetRange, ...]
    files: tuple[DataFile, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """The manifest of a merge: `files` replace those whose paths are in `supersedes`."""

    merged_at_ms: int
    files: tuple[DataFile, ...]
    supersedes: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """From here on only this run adds batches of the topics. An earlier run that is still alive is fenced."""

    run: str
    who: str
    claimed_at_ms: int
    topics: tuple[str, ...]


Manifest = Batch | Merge | Claim


@dataclass(frozen=True)
class Summary:
    """The sum of all manifests without their files: the offsets that they cover, and the owner of each topic.

    Its size depends on the number of partitions and holes, not on that of batches.
    """

    # the number of the last manifest
    number: int = 0
    ranges: tuple[OffsetRange, ...] = ()
    records: Mapping[TopicPartition, int] = field(default_factory=dict)
    # the last batch of each query
    batches: Mapping[str, int] = field(default_factory=dict)
    # the last claim of each topic
    owners: Mapping[str, Claim] = field(default_factory=dict)
    # the run that created the archive
    origin: str = ""
    # the topic id of each history; an archive of an older Ottla has none
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    # earlier numbers whose manifests are gone
    missing: tuple[int, ...] = ()

    @property
    def histories(self) -> list[str]:
        return sorted({one.topic for one in self.ranges})

    @property
    def topics(self) -> list[str]:
        return sorted({topic_of(history) for history in self.histories})

    @property
    def ends(self) -> Offsets:
        """For each partition, the offset after the last one that is covered."""
        ends: Offsets = {}
        for one in self.ranges:
            ends[one.at] = max(one.end, ends.get(one.at, 0))
        return ends

    @property
    def starts(self) -> Offsets:
        return {at: union(spans)[0].start for at, spans in spans_by_partition(self.ranges).items()}


@dataclass(frozen=True)
class Archived(Summary):
    """The sum of all manifests."""

    files: Mapping[str, DataFile] = field(default_factory=dict)
    # those whose small files may still exist
    merges: tuple[Merge, ...] = ()

    def files_of(self, history: str) -> list[DataFile]:
        return sorted(
            (file for file in self.files.values() if file.topic == history), key=lambda file: file.path
        )


def summarize(manifests: Mapping[int, Manifest], before: Summary | None = None) -> Summary:
    """The sum of these manifests and those before them."""
    before = before or Summary()
    ranges = list(before.ranges)
    records, batches = dict(before.records), dict(before.batches)
    owners, topic_ids = dict(before.owners), dict(before.topic_ids)
    origin = before.origin
    for _, one in sorted(manifests.items()):
        if isinstance(one, Claim):
            owners.update(dict.fromkeys(one.topics, one))
            origin = origin or one.run
        elif isinstance(one, Batch):
            ranges.extend(one.ranges)
            batches[one.query_id] = max(one.batch_id, batches.get(one.query_id, 0))
            topic_ids.update(one.topic_ids)
            for file in one.files:
                topic = file.topic
                for partition, part in file.slices.items():
                    at = TopicPartition(topic, partition)
                    records[at] = records.get(at, 0) + part.records
    number = max(manifests, default=before.number)
    missing = tuple(one for one in range(before.number + 1, number) if one not in manifests)
    return Summary(
        number,
        tuple(sorted(ranges)),
        records,
        batches,
        owners,
        origin,
        topic_ids,
        before.missing + missing,
    )


def combine(manifests: Mapping[int, Manifest], before: Archived | None = None) -> Archived:
    """In the order of their numbers: a merge supersedes files of earlier batches and merges."""
    before = before or Archived()
    files, merges = dict(before.files), list(before.merges)
    for _, one in sorted(manifests.items()):
        if isinstance(one, Claim):
            continue
        if isinstance(one, Merge):
            merges.append(one)
            for path in one.supersedes:
                files.pop(path, None)
        files.update({file.path: file for file in one.files})
    return with_files(summarize(manifests, before), files, merges)


def with_files(summary: Summary, files: Mapping[str, DataFile], merges: Sequence[Merge]) -> Archived:
    known = {one.name: getattr(summary, one.name) for one in fields(Summary)}
    return Archived(**known, files=files, merges=tuple(merges))


def to_json(manifest: Manifest) -> str:
    return json.dumps({"version": _VERSION} | content_of(manifest), indent=1)


def content_of(manifest: Manifest) -> dict[str, Any]:
    """As it is written, without the version."""
    if isinstance(manifest, Claim):
        content: dict[str, Any] = {"claim": manifest.run, "who": manifest.who}
        return content | {"claimed_at_ms": manifest.claimed_at_ms, "topics": list(manifest.topics)}
    files = [_file_to_json(file) for file in manifest.files]
    if isinstance(manifest, Merge):
        content = {"merged_at_ms": manifest.merged_at_ms, "supersedes": list(manifest.supersedes)}
        return content | {"files": files}
    content = {"query": manifest.query_id, "batch": manifest.batch_id, "topic_ids": dict(manifest.topic_ids)}
    return content | {"ranges": [list(one) for one in manifest.ranges], "files": files}


def _file_to_json(file: DataFile) -> dict[str, Any]:
    slices = {
        str(partition): {"first": one.first, "last": one.last, "records": one.records}
        for partition, one in sorted(file.slices.items())
    }
    return {"path": file.path, "bytes": file.bytes, "records": file.records, "partitions": slices}


def from_json(text: str, where: str) -> Manifest:
    """`where` is the manifest's full path, for errors."""
    return read_content(text, where, parsed)


def fold_from_json(text: str, where: str) -> dict[int, Manifest]:
    """Many manifests word for word in one file, as an older Ottla wrote them."""
    return read_content(
        text,
        where,
        lambda content: {int(number): parsed(one) for number, one in content["manifests"].items()},
    )


def read_content(
    text: str, where: str, parse: Callable[[Mapping[str, Any]], _Parsed], supported: int = _VERSION
) -> _Parsed:
    with damage_named(where):
        content = json.loads(text)
        version = content["version"]
        if version == supported:
            return parse(content)
    raise PipelineError(
        f"The manifest {where} has version {version}, which this version of Ottla does not support.",
        "Use a newer Ottla.",
    )


@contextmanager
def damage_named(where: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise PipelineError(
            f"The manifest {where} is damaged: {type(error).__name__}: {error}.",
            "Restore it from a copy of the archive. Without it, the files that it names do not count as archived; if "
            "you remove it, `ottla pipeline verify` reports the missing offsets.",
        ) from None


def parsed(content: Mapping[str, Any]) -> Manifest:
    if "claim" in content:
        claimed_at_ms, topics = int(content["claimed_at_ms"]), tuple(content["topics"])
        return Claim(str(content["claim"]), str(content["who"]), claimed_at_ms, topics)
    files = tuple(_file(item) for item in content["files"])
    if "supersedes" in content:
        return Merge(int(content["merged_at_ms"]), files, tuple(content["supersedes"]))
    ranges = tuple(
        OffsetRange(str(topic), int(partition), int(start), int(end))
        for topic, partition, start, end in content["ranges"]
    )
    topic_ids = {str(history): str(one) for history, one in content.get("topic_ids", {}).items()}
    return Batch(str(content["query"]), int(content["batch"]), ranges, files, topic_ids)


def _file(item: Mapping[str, Any]) -> DataFile:
    slices = {
        int(partition): Slice(int(one["first"]), int(one["last"]), int(one["records"]))
        for partition, one in item["partitions"].items()
    }
    return DataFile(str(item["path"]), int(item["bytes"]), slices)
