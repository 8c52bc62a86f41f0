"""Topics as a stream: which offsets a micro-batch takes, and what it reads between two of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.pipeline.spark.discovery import Discovery, check_exists
from ottla.pipeline.spark.fetching import read_range
from ottla.pipeline.spark.offsets import Offsets, from_json, limited, ranges_between, split, to_json
from ottla.pipeline.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        discovery = Discovery(self.options)
        partitions = discovery.partitions()
        check_exists(self.options, partitions)
        return to_json(discovery.resolve(self.options.start, partitions, is_start=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.rows_max) if self.options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        discovery = Discovery(self.options)
        self.target = discovery.latest(discovery.partitions())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        discovery = Discovery(self.options)
        begin = from_json(start)
        if self.target is not None:
            latest = self.target
        else:
            latest = discovery.latest(discovery.partitions())
        new = discovery.earliest([at for at in latest if at not in begin])
        end = latest | new
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = ranges_between(from_json(start), from_json(end))
        return [InputPartition(one) for one in split(ranges, self.options.partitions_min)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self.options, partition.value)
