"""Manifests for unit tests of the archive, without files behind them."""

import json
from collections.abc import Iterable, Mapping

from ottla.pipeline.archive.layout import Hour, data_file
from ottla.pipeline.archive.manifest import Archived, Batch, DataFile, Manifest, Slice, combine, to_json
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
