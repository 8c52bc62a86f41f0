"""Merges the small files of past hours into larger ones.

The merged file is written beside the small ones and replaces them by one manifest: a reader sees either them or it. A
later merge deletes the small ones, when no query can still be reading them, and the files of merges that were killed.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pyspark.sql import functions as F

from ottla.pipeline.archive.columns import HOUR_COLUMNS, SCHEMA, archived_rows
from ottla.pipeline.archive.delta import delta_logs, publish
from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.layout import (
    MANIFESTS,
    STAGING,
    Hour,
    is_abandoned,
    merge_begun_at,
    merge_name,
    run_name,
    topic_of,
)
from ottla.pipeline.archive.manifest import Archived, DataFile, Merge
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.staging import move_staged, stage_sorted
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.unnamed import deletable
from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

LARGE_BYTES = 128 << 20
ROUND_BYTES = 2 << 30
_TASKS_MAX = 64
HOUR_MS = 3_600_000
# A batch may write into an hour shortly after its end.
CLOSED_AFTER_MS = HOUR_MS
# longer than any query on the archive should run
KEEP_SUPERSEDED_MS = 24 * HOUR_MS
# from the start of the merge that wrote them
KEEP_UNNAMED_MS = 2 * KEEP_SUPERSEDED_MS


class Merged(NamedTuple):
    """The files of an hour before and after the merge, and their records."""

    hour: Hour
    before: int
    after: int
    records: int


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def merge(spark: "SparkSession", path: str, clock_ms: Callable[[], int] = wall_clock_ms) -> list[Merged]:
    """Merges every past hour with small files, in rounds. A merge that is interrupted keeps its finished rounds."""
    archive = Archive.at(path, spark)
    archive.check()
    archived = archive.load()
    now_ms = clock_ms()
    logs = delta_logs(archive, archived.histories, wanted=False)
    # First, because a Delta log that is behind may still list files that are deleted next.
    publish(archive, logs)
    delete_leftovers(spark, archive, archived, archived.histories, now_ms)
    done = []
    for files in split_into_rounds(mergeable(archived, now_ms)):
        done += _summarize(files, merge_files(spark, archive, files, clock_ms))
        publish(archive, logs)
    return done


def mergeable(archived: Archived, now_ms: int, files_min: int = 2) -> dict[Hour, list[DataFile]]:
    """The small files of each past hour that has at least so many of them."""
    hours: dict[Hour, list[DataFile]] = {}
    for file in archived.files.values():
        if file.bytes < LARGE_BYTES // 2 and end_ms(file.hour) + CLOSED_AFTER_MS <= now_ms:
            hours.setdefault(file.hour, []).append(file)
    return {
        hour: sorted(files, key=lambda file: file.path)
        for hour, files in sorted(hours.items())
        if len(files) >= files_min
    }


def end_ms(hour: Hour) -> int:
    begin = datetime.fromisoformat(hour.date).replace(tzinfo=UTC, hour=hour.hour)
    return int(begin.timestamp() * 1000) + HOUR_MS


def split_into_rounds(
    hours: Mapping[Hour, list[DataFile]], bytes_max: int = ROUND_BYTES
) -> list[list[DataFile]]:
    """Files of one history, as many as a merge may write at a time: of whole hours, or a part of a large hour."""
    taken: list[list[DataFile]] = []
    size = bytes_max
    for files in (part for one in hours.values() for part in _parts_of(one, bytes_max)):
        part_size = sum(file.bytes for file in files)
        if size + part_size > bytes_max or taken[-1][0].topic != files[0].topic:
            taken.append([])
            size = 0
        taken[-1].extend(files)
        size += part_size
    return taken


def _parts_of(files: Sequence[DataFile], bytes_max: int) -> list[list[DataFile]]:
    """The files of an hour, divided if they are larger than this together."""
    parts: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if parts[-1] and size + file.bytes > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.bytes
    return parts if len(parts) == 1 else [part for part in parts if len(part) > 1]


def merge_files(
    spark: "SparkSession", archive: Archive, files: list[DataFile], clock_ms: Callable[[], int]
) -> tuple[DataFile, ...]:
    # Of this round: all rounds together may take longer than a day.
    begun_at_ms = clock_ms()
    merged = _write_merged(spark, archive, files, merge_name(begun_at_ms, run_name()))
    if totals(merged) != totals(files):
        raise PipelineError(
            f"Files of the archive at {archive.url} differ from their manifests.",
            "Find them with `ottla pipeline verify`. Nothing was changed.",
        )
    superseded = tuple(file.path for file in files)

    def check(archived: Archived) -> None:
        is_late = clock_ms() - begun_at_ms >= KEEP_SUPERSEDED_MS
        if is_late or not all(archive.files.exists(file.path) for file in merged):
            # Another merge deletes these files by then, as those of a merge that was killed.
            give_up(
                f"A round of this merge of {archive.url} took longer than a day.",
                "Merge again on a machine that reads the files faster.",
            )
        if not archived.files.keys() >= set(superseded):
            give_up(f"Another merge of {archive.url} is running.", "Wait until it ends, then merge the rest.")

    def give_up(what: str, remedy: str) -> NoReturn:
        for file in merged:
            archive.files.delete(file.path)
        raise PipelineError(what, f"{remedy} Nothing was changed.")

    # A query may have started to read the small files at any time until now.
    archive.commit_merge(Merge(clock_ms(), merged, superseded), check)
    return merged


def _summarize(files: Sequence[DataFile], merged: Sequence[DataFile]) -> list[Merged]:
    return [
        Merged(
            hour,
            sum(file.hour == hour for file in files),
            sum(file.hour == hour for file in merged),
            sum(file.records for file in merged if file.hour == hour),
        )
        for hour in sorted({file.hour for file in merged})
    ]


def _write_merged(
    spark: "SparkSession", archive: Archive, files: list[DataFile], name: str
) -> tuple[DataFile, ...]:
    staging = f"{STAGING}/{name}"
    sizes: dict[Hour, int] = {}
    for file in files:
        sizes[file.hour] = sizes.get(file.hour, 0) + file.bytes
    shares = math.ceil(max(sizes.values()) / LARGE_BYTES)
    tasks = min(_TASKS_MAX, shares * len(sizes))
    with explain_write_errors(archive.url):
        small = spark.read.schema(SCHEMA).parquet(*(archive.files.url(file.path) for file in files))
        # Each hour of a topic is divided among tasks by partition. Each of them writes one file.
        history = files[0].topic
        divided = archived_rows(small, {topic_of(history): history}).repartition(
            tasks, *HOUR_COLUMNS, F.pmod("partition", F.lit(shares))
        )
        stage_sorted(divided, archive.files.url(staging))
        merged = move_staged(archive, spark, staging, name)
        archive.files.delete(staging)
    return merged


def totals(files: Iterable[DataFile]) -> dict[tuple[Hour, int], Slice]:
    """The content of the files together, by hour and partition."""
    slices: dict[tuple[Hour, int], Slice] = {}
    for file in files:
        for partition, one in file.slices.items():
            before = slices.get((file.hour, partition), Slice(one.first, one.last, 0))
            first, last = min(before.first, one.first), max(before.last, one.last)
            slices[file.hour, partition] = Slice(first, last, before.records + one.records)
    return slices


def delete_leftovers(
    spark: "SparkSession", archive: Archive, archived: Archived, histories: Iterable[str], now_ms: int
) -> None:
    """Deletes what no reader needs any more. Nothing if the manifests are not those of the files that are there."""
    if archived.missing:
        # A manifest that is gone may name any of the files.
        return
    chosen = set(histories)
    found = [file.path for history in sorted(chosen) for file in archive.files.below(history)]
    lost = sorted({path for path, file in archived.files.items() if file.topic in chosen}.difference(found))
    if lost:
        # The manifests may be an older copy: then a merged file that they do not name has these records.
        _log.warning(
            "%d files that the manifests of the archive at %s name are missing, the first is %s. No file is deleted "
            "until they are back. Restore them, or the newest %s if it was replaced by an older copy; "
            "`ottla pipeline verify` names the files.",
            len(lost),
            archive.url,
            lost[0],
            MANIFESTS,
        )
        return
    superseded = {path for one in archived.merges for path in one.supersedes}
    over = leftovers(found, archived, now_ms)
    for path in superseded.intersection(over):
        archive.files.delete(path)
    for path in deletable(spark, archive, archived, [path for path in over if path not in superseded]):
        archive.files.delete(path)
    for name in archive.files.names(STAGING):
        if is_abandoned(name, {}, now_ms - KEEP_UNNAMED_MS):
            archive.files.delete(f"{STAGING}/{name}")


def leftovers(paths: Iterable[str], archived: Archived, now_ms: int) -> list[str]:
    """Those of the files that were superseded a day ago, or that a merge left which died two days ago."""
    superseded_at = {path: one.merged_at_ms for one in archived.merges for path in one.supersedes}
    folders = {file.hour.folder for file in archived.files.values()}
    over = []
    for path in paths:
        if path in archived.files:
            continue
        if path in superseded_at:
            is_over = superseded_at[path] + KEEP_SUPERSEDED_MS <= now_ms
        else:
            # A merge gives up after a day, but its manifest may take a moment longer. It leaves the files that it read,
            # or others supersede them. If the hour has none, the manifests are an older copy, and the merged file may
            # have the only records of the hour.
            begun_at_ms = merge_begun_at(path)
            is_old = begun_at_ms is not None and begun_at_ms + KEEP_UNNAMED_MS <= now_ms
            is_over = is_old and path.rpartition("/")[0] in folders
        if is_over:
            over.append(path)
    return over
