"""Writes the data files of a batch or of a merge: first staged, then moved to names that only these files have.

A task of Spark writes one file for each hour of a topic, with its records sorted by partition and offset.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipeline.archive.columns import HOUR_COLUMNS
from ottla.pipeline.archive.layout import STAGING, Hour, StagedFile, final_names, staged_file
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# how many files are moved at a time
_THREADS = 16
# A task of a batch with fewer hours keeps a file of each open, and does not sort its records.
OPEN_FILES_MAX = 32
_WRITE_OPTIONS = {
    "compression": "zstd",
    # The slices of a file are found by its folder, so a folder has one file.
    "maxRecordsPerFile": "0",
    # Nobody reads staged files, so the job need not rename them once more at its end.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_FOLDER_COLUMNS = (*HOUR_COLUMNS, "_task")
_STAGED_SCHEMA = "partition int, offset long, _topic string, _hour long, _task int"


class OrderedFiles:
    """Writes the rows of batches, which are read in the order of their offsets.

    A task with few hours writes each row into the file of its hour as it comes, so that files have the same order. If
    a task has many, as in a backlog of days, Spark sorts its rows by hour alone and their order is lost: then all are
    written again, sorted, and those of the next batch at once.
    """

    def __init__(self) -> None:
        self.must_sort = False

    def write(self, archive: Archive, rows: "DataFrame", name: str, tasks: int) -> tuple[DataFile, ...]:
        """No record moves to another task, so a batch is as fast as its tasks together."""
        staging = f"{STAGING}/{name}"
        staged = [] if self.must_sort else self._stage(archive, rows.coalesce(tasks), staging)
        if self.must_sort:
            archive.files.delete(staging)
            staged = self._stage(archive, rows.coalesce(tasks), staging)
        return _move(archive, rows.sparkSession, staging, staged, name)

    def _stage(self, archive: Archive, rows: "DataFrame", staging: str) -> list[StagedFile]:
        url = archive.files.url(staging)
        if self.must_sort:
            stage_sorted(rows, url)
        else:
            _stage(_with_task(rows), url, open_files=OPEN_FILES_MAX)
        staged = _staged_files(archive, staging)
        self.must_sort = _has_many_hours(staged)
        return staged


def stage_sorted(rows: "DataFrame", url: str) -> None:
    _stage(_with_task(rows).sortWithinPartitions(*_FOLDER_COLUMNS, "partition", "offset"), url, open_files=0)


def move_staged(archive: Archive, spark: "SparkSession", staging: str, name: str) -> tuple[DataFile, ...]:
    return _move(archive, spark, staging, _staged_files(archive, staging), name)


def _stage(rows: "DataFrame", url: str, open_files: int) -> None:
    conf = rows.sparkSession.conf
    # Spark's default type has no statistics, with which readers skip row groups.
    conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    conf.set("spark.sql.maxConcurrentOutputFileWriters", open_files)
    rows.write.partitionBy(*_FOLDER_COLUMNS).options(**_WRITE_OPTIONS).parquet(url)


def _with_task(rows: "DataFrame") -> "DataFrame":
    return rows.withColumn("_task", F.spark_partition_id())


def _staged_files(archive: Archive, staging: str) -> list[StagedFile]:
    found = (staged_file(file.path, file.bytes) for file in archive.files.below(staging))
    return [file for file in found if file is not None]


def _has_many_hours(staged: Iterable[StagedFile]) -> bool:
    """Whether a task had so many hours that Spark may have sorted its rows."""
    return max(Counter(file.task for file in staged).values(), default=0) >= OPEN_FILES_MAX


def _move(
    archive: Archive, spark: "SparkSession", staging: str, staged: Sequence[StagedFile], name: str
) -> tuple[DataFile, ...]:
    if not staged:
        return ()
    slices = _slices_of(spark, archive.files.url(staging))
    names = final_names(staged, name)
    with ThreadPoolExecutor(_THREADS) as movers:
        list(movers.map(archive.files.move, (file.path for file in staged), names))
    return tuple(
        DataFile(final, file.bytes, slices[file.hour, file.task])
        for file, final in zip(staged, names, strict=True)
    )


def _slices_of(spark: "SparkSession", url: str) -> dict[tuple[Hour, int], dict[int, Slice]]:
    """The content of staged files, read back from them: by hour and task, and then by partition."""
    # Grouped by their paths, this would take twice as long.
    content = spark.read.schema(_STAGED_SCHEMA).parquet(url).groupBy(*_FOLDER_COLUMNS, "partition")
    counted = content.agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records")
    )
    slices: dict[tuple[Hour, int], dict[int, Slice]] = {}
    for row in counted.collect():
        at = Hour.since_epoch(row["_topic"], row["_hour"]), row["_task"]
        slices.setdefault(at, {})[row["partition"]] = Slice(row["first"], row["last"], row["records"])
    return slices
