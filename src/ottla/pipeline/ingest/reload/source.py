"""`format("ottla-archive")`: the records of an archive as a stream, in the order of their offsets."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
)
from pyspark.sql.types import StructType

from ottla.pipeline.archive.filesystem import readable_files
from ottla.pipeline.archive.store import Manifests
from ottla.pipeline.ingest.reload.plan import Plan, Task, files_for, group_overlapping
from ottla.pipeline.spark.offsets import from_json, limited, ranges_between, to_json
from ottla.pipeline.spark.reader_process import QueryReader
from ottla.pipeline.spark.rows import COLUMNS_WITH_HEADERS

if TYPE_CHECKING:
    import pyarrow as pa


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-archive"

    def schema(self) -> StructType:
        return COLUMNS_WITH_HEADERS

    def streamReader(self, schema: StructType) -> "ArchiveStreamReader":
        return ArchiveStreamReader(self.options)


class ArchiveStreamReader(QueryReader):
    """The plan fixes its end, so all of it is available from the beginning."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.plan = Plan.from_json(options["plan"])
        self._offsets_max = int(options["maxOffsetsPerTrigger"])

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self.plan.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """The plan already fixes the end."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return to_json(self.plan.end)
        return to_json(limited(from_json(start), self.plan.end, self._offsets_max))

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json(self.plan.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Looks up the files for every batch: a merge may have put the records into others."""
        files = readable_files(self.plan.path, self.options)
        archived = Manifests(files).load()
        tasks = []
        for wanted in ranges_between(from_json(start), from_json(end)):
            groups = group_overlapping(files_for(wanted, archived), wanted.partition)
            paths = [[file.path for file in group] for group in groups]
            tasks.append(InputPartition(Task(wanted, self.plan.times, paths)))
        return tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from ottla.pipeline.ingest.reload.reader import read_task

        return read_task(self.plan.path, self.options, partition.value)
