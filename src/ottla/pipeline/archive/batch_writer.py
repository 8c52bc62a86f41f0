"""Writes a micro-batch into the archive, exactly once.

The batch's files are staged, moved to names that only this batch of this run has, and added by its manifest, which is
written last, completely or not at all. A batch that runs again and finds its manifest has nothing to do. One that does
not find it writes its files again, and removes those of the earlier attempt once its own manifest exists.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.columns import archived_rows
from ottla.pipeline.archive.delta import DeltaLog, publish
from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.lag import RetentionWatch
from ottla.pipeline.archive.layout import (
    STAGED,
    STAGING,
    Hour,
    batch_name,
    final_names,
    query_name,
    staging_query,
)
from ottla.pipeline.archive.manifest import Batch, DataFile, Slice
from ottla.pipeline.archive.ownership import Run, clean_up
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

# One task sorts and writes this many. If a batch has more of one hour, several tasks share it.
_RECORDS_PER_FILE = 1_000_000
_HOURS_PER_BATCH = 2
_WRITE_OPTIONS = {
    "compression": "zstd",
    # Nobody reads staged files, so the job need not rename them once more at its end.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


class BatchWriter:
    """Called by Spark with each micro-batch of one query."""

    def __init__(
        self,
        archive: Archive,
        run: Run,
        logs: Sequence[DeltaLog],
        checkpoint: Checkpoint,
        cluster: Discovery,
        watch: RetentionWatch,
    ) -> None:
        self.archive = archive
        self.run = run
        self.logs = logs
        self.checkpoint = checkpoint
        self.cluster = cluster
        self.watch = watch
        # where the first batch starts if the checkpoint is new and the archive is not
        self.start = archive.load().ends
        self.is_first = True

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        with explain_write_errors(self.archive.url):
            try:
                self.write(rows, batch_id)
            except PipelineError:
                raise
            except Exception:
                # If another run has claimed the topics, it removed the files that this run had staged.
                self.run.check(self.archive.load())
                raise

    def write(self, rows: "DataFrame", batch_id: int) -> None:
        self.archive.check()
        query_id = str(self.checkpoint.query_id())
        if self.is_first:
            _remove_staged(self.archive, query_id)
        if batch_id > self.archive.load().batches.get(query_id, -1):
            self.add(rows, batch_id, query_id)
        else:
            _log.info("batch %d is archived already", batch_id)
        if self.is_first:
            # Only the first batch of a run can have had an earlier attempt.
            self.is_first = False
            _remove_earlier_attempts(self.archive, batch_name(batch_id, query_id))
            clean_up(self.archive)
        self.watch.check(self.archive)

    def add(self, rows: "DataFrame", batch_id: int, query_id: str) -> None:
        start = self.checkpoint.topic_offsets(batch_id - 1) if batch_id else self.start
        end = self.checkpoint.topic_offsets(batch_id)
        name = f"{batch_name(batch_id, query_id)}-{self.run.name}"
        files = _write_files(self.archive, rows, name, expected_records(start, end))
        ranges = batch_ranges(start, end, self.cluster.earliest(list(end)), _first_offsets(files))
        self.archive.commit(Batch(query_id, batch_id, ranges, files), self.run.check)
        publish(self.archive, self.logs)
        self.archive.files.delete(f"{STAGING}/{name}")
        self.archive.fold()


def _remove_staged(archive: Archive, query_id: str) -> None:
    """Removes what earlier runs of the query staged. On a full disk, each attempt would add more."""
    for name in archive.files.names(STAGING):
        if staging_query(name) == query_name(query_id):
            archive.files.delete(f"{STAGING}/{name}")


def _remove_earlier_attempts(archive: Archive, batch: str) -> None:
    """Removes files of earlier attempts at a batch. They hold the same records, so they are in the same folders."""
    archived = archive.load()
    named = archived.files.keys() | {path for merge in archived.merges for path in merge.supersedes}
    hours = {
        file.hour for file in archived.files.values() if file.path.startswith(_file_prefix(file.hour, batch))
    }
    for hour in hours:
        for name in archive.files.names(hour.folder):
            path = f"{hour.folder}/{name}"
            if path.startswith(_file_prefix(hour, batch)) and path not in named:
                archive.files.delete(path)


def _file_prefix(hour: Hour, batch: str) -> str:
    return f"{hour.folder}/{batch}-"


def _write_files(archive: Archive, rows: "DataFrame", name: str, records: int) -> tuple[DataFile, ...]:
    """Writes about one file for each hour of a topic, with its records sorted by partition and offset."""
    staging = f"{STAGING}/{name}"
    shares = max(1, math.ceil(records / _RECORDS_PER_FILE))
    stage_rows(
        archived_rows(rows), archive.files.url(staging), shares=shares, tasks=_HOURS_PER_BATCH * shares
    )
    return move_staged(archive, rows, staging, name)


def stage_rows(rows: "DataFrame", url: str, *, shares: int, tasks: int) -> None:
    """Divides each hour of a topic among `shares` tasks, by partition. Each of them writes one file."""
    # Spark's default type has no statistics, with which readers skip row groups.
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    hour = [F.col("_topic"), F.col("date"), F.col("hour")]
    together = rows.repartition(tasks, *hour, F.pmod("partition", F.lit(shares)))
    ordered = together.sortWithinPartitions(*hour, "partition", "offset")
    ordered.write.partitionBy("_topic", "date", "hour").options(**_WRITE_OPTIONS).parquet(url)


def move_staged(archive: Archive, rows: "DataFrame", staging: str, name: str) -> tuple[DataFile, ...]:
    staged = {found.path: found.bytes for found in archive.files.below(staging) if STAGED.search(found.path)}
    if not staged:
        return ()
    slices = _slices_of(rows.sparkSession, archive.files.url(staging))
    names = final_names(list(staged), name)
    for path, final in names.items():
        archive.files.move(path, final)
    return tuple(DataFile(final, staged[path], slices[_staged_path(path)]) for path, final in names.items())


def _slices_of(spark: Any, url: str) -> dict[str, dict[int, Slice]]:
    """The content of the files below a folder, read back from them: by the end of each path, then by partition."""
    content = spark.read.schema("partition int, offset long").parquet(url)
    counted = content.groupBy(F.col("_metadata.file_path").alias("path"), "partition").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records")
    )
    slices: dict[str, dict[int, Slice]] = {}
    for row in counted.collect():
        slices.setdefault(_staged_path(row.path), {})[row.partition] = Slice(row.first, row.last, row.records)
    return slices


def _staged_path(path: str) -> str:
    """The part below the staging folder: parts of Spark write the rest in different ways."""
    return path[path.index("/_topic=") :]


def expected_records(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start.get(at, 0)) for at, offset in end.items())


def _first_offsets(files: tuple[DataFile, ...]) -> Offsets:
    first: Offsets = {}
    for file in files:
        for partition, one in file.slices.items():
            at = TopicPartition(file.topic, partition)
            first[at] = min(one.first, first.get(at, one.first))
    return first


def batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
) -> tuple[OffsetRange, ...]:
    """The offsets that a batch covers, also those without a record: compacted, aborted, or control records.

    If the topic starts after the batch's start, records may have been deleted before they were read. Then the batch
    covers only the offsets that it read or that still exist, and the rest stays a hole.
    """
    ranges = []
    for at, last in sorted(end.items()):
        begin = start.get(at, 0)
        low = earliest.get(at, begin)
        if low > begin or at not in start:
            begin = max(begin, min(low, last, first.get(at, last)))
        if begin < last:
            ranges.append(OffsetRange(*at, begin, last))
    return tuple(ranges)
