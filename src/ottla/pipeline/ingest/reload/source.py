"""The streaming source `format("ottla-archive")`: archived records by their offsets, in the order of their offsets."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.pipeline.archive.manifest import combine
from ottla.pipeline.archive.store import Manifests
from ottla.pipeline.ingest.reload.filesystem import readable_files
from ottla.pipeline.ingest.reload.plan import Plan, Times, files_for, runs_of
from ottla.pipeline.spark.offsets import OffsetRange, from_json, limited, ranges_between, to_json
from ottla.pipeline.spark.rows import COLUMNS_WITH_HEADERS

if TYPE_CHECKING:
    import pyarrow as pa


class Task(NamedTuple):
    """What one Spark task reads: a range of a partition, out of these runs of files."""

    wanted: OffsetRange
    times: Times
    runs: list[list[str]]


class ArchiveDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-archive"

    def schema(self) -> StructType:
        return COLUMNS_WITH_HEADERS

    def streamReader(self, schema: StructType) -> "ArchiveStreamReader":
        return ArchiveStreamReader(self.options)


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its end is fixed by the plan, so all of it is available from the beginning."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self.plan = Plan.from_json(options["plan"])
        self.rows_max = int(options["maxOffsetsPerTrigger"])

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self.plan.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing can come after the plan's end."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return to_json(self.plan.end)
        return to_json(limited(from_json(start), self.plan.end, self.rows_max))

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json(self.plan.end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files are looked up at each batch: a merge may have put the records into others."""
        files = readable_files(self.plan.path, self.options)
        archived = combine(Manifests(files).load())
        tasks = []
        for wanted in ranges_between(from_json(start), from_json(end)):
            runs = runs_of(files_for(wanted, archived), wanted.partition)
            paths = [[file.path for file in run] for run in runs]
            tasks.append(InputPartition(Task(wanted, self.plan.times, paths)))
        return tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from ottla.pipeline.ingest.reload.reading import read_task

        return read_task(self.plan.path, self.options, partition.value)
