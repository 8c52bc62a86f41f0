"""Manifests for unit tests of the archive, without files behind them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.pipeline.archive.condensed import condensed_ranges
from ottla.pipeline.archive.layout import Hour, data_file
from ottla.pipeline.archive.manifest import (
    Archived,
    Batch,
    Claim,
    DataFile,
    Manifest,
    Merge,
    combine,
    to_json,
)
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark.offsets import OffsetRange

QUERY = "ded03600-6db7-4587-9169-9cacebe35b91"


def a_file(
    name: str, *slices: tuple[int, int, int], topic: str = "raw", hour: int = 7, size: int = 1000
) -> DataFile:
    """Each slice is a partition with its first and last offset, without holes."""
    path = data_file(Hour(topic, "2026-01-31", hour), name, 0)
    return DataFile(
        path, size, {partition: Slice(first, last, last - first + 1) for partition, first, last in slices}
    )


def a_batch(number: int, ranges: Iterable[tuple[str, int, int, int]], *files: DataFile) -> Batch:
    return Batch(QUERY, number, tuple(OffsetRange(*one) for one in ranges), files)


def an_archive(*ranges: tuple[str, int, int, int]) -> Archived:
    return combine({1: a_batch(0, ranges)})


def older_fold(manifests: Mapping[int, Manifest]) -> str:
    """The manifests word for word in one file, as an older Ottla wrote them."""
    content = {str(number): json.loads(to_json(one)) for number, one in manifests.items()}
    return json.dumps({"version": 1, "manifests": content})


def a_history(count: int) -> dict[int, Manifest]:
    """A claim, batches of one file each, and after every fifth a merge of the last three files."""
    history: dict[int, Manifest] = {1: Claim("5eed", "process 7 on here", 98, ("raw",))}
    files: list[DataFile] = []
    for number in range(2, count + 1):
        if number % 5 == 0 and len(files) >= 3:
            merged = a_file(f"m{number}", (0, 0, number))
            history[number] = Merge(number, (merged,), tuple(file.path for file in files[-3:]))
            files = [*files[:-3], merged]
        else:
            file = a_file(f"b{number}", (0, number, number), (1, number, number))
            history[number] = replace(
                a_batch(number, [("raw", 0, number, number + 1), ("raw", 1, number, number + 1)], file),
                topic_ids={"raw": "id"},
            )
            files.append(file)
    return history


def add(archive: Archive, manifest: Manifest) -> None:
    if isinstance(manifest, Merge):
        archive.commit_merge(manifest, lambda _: None)
    else:
        archive.commit(manifest, lambda _: None)


def says(archived: Archived) -> Archived:
    """Without what only the way to it decides."""
    return replace(archived, ranges=condensed_ranges(archived.ranges), merges=())
