"""Reads topics as a batch. Start and end are decided once, when the query is planned."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.pipeline.spark.data_loss import find_losses, report_loss
from ottla.pipeline.spark.discovery import Discovery, check_exists
from ottla.pipeline.spark.offsets import OffsetRange, ranges_between, split
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.range_reader import read_range

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        ranges = split(plan(self.options), self.options.partitions_min, self.options.partition_rows_max)
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        # Spark plans one empty partition if there is none.
        return iter(()) if partition.value is None else read_range(self.options, partition.value)


def plan(options: ReadOptions) -> list[OffsetRange]:
    discovery = Discovery(options)
    partitions = discovery.partitions()
    check_exists(options, partitions)
    start = discovery.resolve(options.start, partitions, is_start=True)
    end = discovery.resolve(options.end, partitions, is_start=False)
    if "offsets" in (options.start.kind, options.end.kind):
        earliest, latest = discovery.earliest(partitions), discovery.latest(partitions)
        for bound in (start, end):
            for loss in find_losses(bound, earliest, latest):
                report_loss(loss, options.fail_on_data_loss)
        start = {at: max(offset, earliest[at]) for at, offset in start.items()}
        end = {at: min(offset, latest[at]) for at, offset in end.items()}
    return ranges_between(start, end)
