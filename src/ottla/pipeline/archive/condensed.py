"""The earlier part of an archive's history, condensed: what its manifests say together, in a few files.

A summary has the sum of the manifests 1 to N without their files, so its size does not grow with the history. It names
lists of files, each of which has the files of a range of manifests. The lists have levels, as in a log-structured merge
tree: several lists of a level are joined into one of the next. So a history of N manifests has about log N lists, and
each file is written into a list about log N times.

Each summary is made from the one before it and has the next sequence number. Only one of two writers gets a number, so
the summary with the highest number is always right, and so is every list that it names.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.manifest import (
    Archived,
    Claim,
    DataFile,
    Manifest,
    Merge,
    Summary,
    content_of,
    damage_named,
    parsed,
    read_content,
    to_json,
    with_files,
)
from ottla.pipeline.archive.ranges import overlaps, spans_by_partition, union
from ottla.pipeline.archive.slices import PackedSlices
from ottla.pipeline.spark.offsets import OffsetRange

_VERSION = 2
# what an older Ottla finds; see layout
MARKER_TEXT = json.dumps({"version": _VERSION})
# so many lists of a level are joined into one of the next
LEVEL_SIZE = 8
# While a history is merged, its small files are deleted a day after their merge. This is longer.
_FORGET_SUPERSEDED_MS = 7 * 24 * 3_600_000
_DIGESTS_KEPT = 1000
# how a list of files begins
_LIST_HEAD = f'{{"version":{_VERSION},"files":['
_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class ListRef(NamedTuple):
    """A list of files, by the number of the first manifest in it."""

    name: str
    level: int
    first: int


@dataclass(frozen=True)
class Condensed:
    """A summary file. The one with sequence number 0 stands for an archive that has none."""

    sequence: int = 0
    summary: Summary = field(default_factory=Summary)
    lists: tuple[ListRef, ...] = ()
    # of the last manifests in it, by number: so that a writer knows its own manifest if others condensed it at once
    digests: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileList:
    """The files that a range of manifests added, without those that a merge in it superseded."""

    files: Mapping[str, DataFile] = field(default_factory=dict)
    # what merges in it superseded: paths in earlier lists, and all recent ones
    removed: frozenset[str] = frozenset()
    merges: tuple[Merge, ...] = ()


def digest(manifest: Manifest) -> str:
    return hashlib.sha256(to_json(manifest).encode()).hexdigest()[:16]


def list_of(manifests: Mapping[int, Manifest]) -> FileList:
    return join(_one(manifest) for _, manifest in sorted(manifests.items()))


def _one(manifest: Manifest) -> FileList:
    if isinstance(manifest, Claim):
        return FileList()
    files = {file.path: file for file in manifest.files}
    if not isinstance(manifest, Merge):
        return FileList(files)
    merge = Merge(manifest.merged_at_ms, (), manifest.supersedes)
    return FileList(files, frozenset(manifest.supersedes), (merge,))


def join(lists: Iterable[FileList]) -> FileList:
    """One list in place of several, in their order."""
    files: dict[str, DataFile] = {}
    removed: set[str] = set()
    merges: list[Merge] = []
    for one in lists:
        for path in one.removed:
            if files.pop(path, None) is None:
                removed.add(path)
        files.update(one.files)
        merges += one.merges
    return FileList(files, frozenset(removed), _without_old(merges))


def _without_old(merges: Iterable[Merge]) -> tuple[Merge, ...]:
    """Without those that are old compared with the newest of their history: that of an idle stage may be an old one."""
    histories = [(merge, {path.partition("/")[0] for path in merge.supersedes}) for merge in merges]
    newest_ms: dict[str, int] = {}
    for merge, names in histories:
        for name in names:
            newest_ms[name] = max(merge.merged_at_ms, newest_ms.get(name, 0))
    return tuple(
        merge
        for merge, names in histories
        if any(merge.merged_at_ms >= newest_ms[name] - _FORGET_SUPERSEDED_MS for name in names)
    )


def sum_of(condensed: Condensed, lists: Sequence[FileList]) -> Archived:
    """`lists` are those that the summary names."""
    joined = join(lists)
    return with_files(condensed.summary, joined.files, joined.merges)


def levels_to_join(levels: Sequence[int], new: int) -> tuple[int, int]:
    """How many of the last lists a new one of level `new` is joined with, and the level of the result."""
    rest, level = list(levels), new
    while True:
        same = [one == level for one in rest[-(LEVEL_SIZE - 1) :]]
        if rest and rest[-1] < level:
            rest.pop()
        elif len(same) == LEVEL_SIZE - 1 and all(same):
            del rest[-(LEVEL_SIZE - 1) :]
            level += 1
        else:
            return len(levels) - len(rest), level


def level_of(manifests: int, per_list: int) -> int:
    """The level of a list with so many manifests, if one of level 0 has `per_list`."""
    level = 0
    while manifests >= per_list * LEVEL_SIZE ** (level + 1):
        level += 1
    return level


def condensed_ranges(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """In as few ranges as possible. Offsets that are covered twice stay so."""
    return tuple(
        OffsetRange(*at, *span)
        for at, spans in sorted(spans_by_partition(ranges).items())
        for span in sorted([*union(spans), *overlaps(spans)])
    )


def recent_digests(before: Mapping[int, str], manifests: Mapping[int, Manifest]) -> dict[int, str]:
    known = dict(before) | {
        number: digest(manifests[number]) for number in sorted(manifests)[-_DIGESTS_KEPT:]
    }
    return {number: known[number] for number in sorted(known)[-_DIGESTS_KEPT:]}


def summary_to_json(condensed: Condensed) -> str:
    one = condensed.summary
    content = {
        "version": _VERSION,
        "number": one.number,
        "ranges": [list(item) for item in one.ranges],
        "records": [[*at, count] for at, count in sorted(one.records.items())],
        "batches": dict(one.batches),
        "owners": {topic: content_of(claim) for topic, claim in one.owners.items()},
        "origin": one.origin,
        "topic_ids": dict(one.topic_ids),
        "lists": [list(item) for item in condensed.lists],
        "digests": {str(number): text for number, text in condensed.digests.items()},
    }
    return _dumped(content)


def summary_from_json(text: str, sequence: int, where: str) -> Condensed:
    return read_content(text, where, lambda content: _condensed(content, sequence), _VERSION)


def _condensed(content: Mapping[str, Any], sequence: int) -> Condensed:
    owners = {str(topic): parsed(claim) for topic, claim in content["owners"].items()}
    summary = Summary(
        int(content["number"]),
        tuple(OffsetRange(str(topic), *map(int, numbers)) for topic, *numbers in content["ranges"]),
        {TopicPartition(str(topic), int(at)): int(count) for topic, at, count in content["records"]},
        {str(query): int(batch) for query, batch in content["batches"].items()},
        {topic: claim for topic, claim in owners.items() if isinstance(claim, Claim)},
        str(content["origin"]),
        {str(history): str(one) for history, one in content["topic_ids"].items()},
    )
    lists = tuple(ListRef(str(name), int(level), int(first)) for name, level, first in content["lists"])
    digests = {int(number): str(one) for number, one in content["digests"].items()}
    return Condensed(sequence, summary, lists, digests)


def list_to_json(one: FileList) -> str:
    """Like `list_from_json`, one file after the other."""
    files = ",".join(
        _dumped([file.path, file.bytes, [[partition, *part] for partition, part in sorted(_parts(file))]])
        for file in one.files.values()
    )
    merges = [[merge.merged_at_ms, list(merge.supersedes)] for merge in one.merges]
    return f"{_LIST_HEAD}{files}],{_dumped({'removed': sorted(one.removed), 'merges': merges})[1:]}"


def _dumped(content: object) -> str:
    return _ENCODER.encode(content)


def _parts(file: DataFile) -> list[tuple[int, tuple[int, int, int]]]:
    return [(partition, (one.first, one.last, one.records)) for partition, one in file.slices.items()]


def list_from_json(text: str, where: str) -> FileList:
    with damage_named(where):
        files, rest = _files_apart(text)
    one = read_content(rest, where, _file_list, _VERSION)
    return FileList(files | dict(one.files), one.removed, one.merges)


def _files_apart(text: str) -> tuple[dict[str, DataFile], str]:
    """The files, and the list without them. One file after the other: all at once take ten times the memory."""
    files: dict[str, DataFile] = {}
    if not text.startswith(_LIST_HEAD):
        return files, text
    at = len(_LIST_HEAD)
    while not text.startswith("]", at):
        item, at = _DECODER.raw_decode(text, at)
        file = _file(*item)
        files[file.path] = file
        at += text.startswith(",", at)
    return files, _LIST_HEAD + text[at:]


def _file_list(content: Mapping[str, Any]) -> FileList:
    files = (_file(*item) for item in content["files"])
    merges = tuple(Merge(int(at_ms), (), tuple(paths)) for at_ms, paths in content["merges"])
    return FileList({file.path: file for file in files}, frozenset(content["removed"]), merges)


def _file(path: str, size: int, parts: Sequence[tuple[int, int, int, int]]) -> DataFile:
    return DataFile(str(path), int(size), PackedSlices(parts))
