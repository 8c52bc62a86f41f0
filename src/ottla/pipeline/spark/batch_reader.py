"""A batch read of topics: where it starts and ends is decided once, when the query is planned."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.pipeline.spark.discovery import Discovery, check_exists
from ottla.pipeline.spark.fetching import read_range
from ottla.pipeline.spark.offsets import OffsetRange, ranges_between, split
from ottla.pipeline.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        discovery = Discovery(self.options)
        partitions = discovery.partitions()
        check_exists(self.options, partitions)
        start = discovery.resolve(self.options.start, partitions, is_start=True)
        end = discovery.resolve(self.options.end, partitions, is_start=False)
        return [InputPartition(one) for one in split(ranges_between(start, end), self.options.partitions_min)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        wanted: OffsetRange | None = partition.value
        # Spark plans one partition of nothing where there is none.
        return iter(()) if wanted is None else read_range(self.options, wanted)
