"""`format("ottla-mysql")`: the changes of a MariaDB or MySQL server as a stream of records.

An offset has two parts: the number of snapshot files that were read, and once all of them were, a position in the
binlog (`gtid`). Both point to durable data, files inside the checkpoint and transactions, so a batch can be read again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
)
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import snapshot_files
from ottla.pipeline.ingest.cdc.mysql.binlog.reader import position_after, read_changes
from ottla.pipeline.ingest.cdc.mysql.positions import BinlogPosition, parse_position, parse_position_like
from ottla.pipeline.ingest.cdc.mysql.server import fetch_position
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlCapture
from ottla.pipeline.ingest.cdc.mysql.snapshot import MySqlManifest, take_snapshot
from ottla.pipeline.ingest.cdc.retry import with_retries
from ottla.pipeline.ingest.cdc.snapshot_files import Chunk
from ottla.pipeline.spark.reader_process import QueryReader

_BEGIN = {"chunk": 0, "gtid": ""}

_Offset = dict[str, Any]


@dataclass
class _BinlogRange(InputPartition):
    """The transactions after the position `start`, up to `end`."""

    start: str
    end: str


class MySqlDataSource(DataSource):
    """Its one option `capture` is a `MySqlCapture` as JSON: the stage sets it."""

    @classmethod
    def name(cls) -> str:
        return "ottla-mysql"

    def schema(self) -> str:
        return snapshot_files.SCHEMA

    def streamReader(self, schema: StructType) -> "MySqlStreamReader":
        return MySqlStreamReader(MySqlCapture.from_option(self.options["capture"]))


class MySqlStreamReader(QueryReader):
    def __init__(self, capture: MySqlCapture) -> None:
        self.capture = capture
        self.target: BinlogPosition | None = None
        self.known: _Offset | None = None

    def initialOffset(self) -> _Offset:
        return dict(_BEGIN)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.capture.max_transactions_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = with_retries(self.capture, fetch_position)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        is_limited = not isinstance(limit, ReadAllAvailable)
        if not start["gtid"]:
            manifest = MySqlManifest.load(self.capture.snapshot_folder)
            if manifest is None:
                snapshot_files.check_not_started(start["chunk"], self.capture.snapshot_folder)
                manifest = with_retries(self.capture, take_snapshot)
            chunk = snapshot_files.end_of_chunks(start["chunk"], manifest.chunks, is_limited)
            # The position is empty if the server had no transactions yet: then the binlog is read from its beginning.
            if start["chunk"] < manifest.chunks or manifest.position:
                return {"chunk": chunk, "gtid": manifest.position if chunk == manifest.chunks else ""}
        return {**start, "gtid": str(self._end_of_batch(start["gtid"], is_limited))}

    def _end_of_batch(self, done: str, is_limited: bool) -> BinlogPosition:
        current = with_retries(self.capture, fetch_position)
        start = parse_position_like(current, done, self.capture.address)
        self._check_order(start, current)
        end = self.target if self.target is not None else current
        self.known = {"gtid": str(current)}
        if start.reaches(end):
            return start
        transactions_max = self.capture.max_transactions_per_batch
        if is_limited and start.transactions_to(end) > transactions_max:
            return position_after(self.capture, start, end, transactions_max)
        return end

    def _check_order(self, start: BinlogPosition, current: BinlogPosition) -> None:
        """A server that was reset would use GTIDs again that this source has read already."""
        if not current.reaches(start):
            raise PipelineError(
                f"The binlog of {self.capture.address} ends at {str(current) or 'its beginning'}, before {start}, "
                "up to where this source has read already.",
                "The server was reset or restored. Remove the source's checkpoint folder to start over with a new "
                "snapshot.",
            )

    def reportLatestOffset(self) -> _Offset | None:
        return self.known

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        if end["chunk"] > start["chunk"]:
            return [Chunk(index) for index in range(start["chunk"], end["chunk"])]
        if start["gtid"] == end["gtid"] or self._is_end_of_empty_snapshot(start, end):
            return []
        return [_BinlogRange(start["gtid"], end["gtid"])]

    def _is_end_of_empty_snapshot(self, start: _Offset, end: _Offset) -> bool:
        """A snapshot without rows: its position is where the changes begin, so the batch has none."""
        if start["gtid"]:
            return False
        manifest = MySqlManifest.load(self.capture.snapshot_folder)
        return manifest is not None and end["gtid"] == manifest.position

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Chunk):
            yield from snapshot_files.read_chunk(self.capture.snapshot_folder, partition)
        elif isinstance(partition, _BinlogRange):
            end = parse_position(partition.end)
            start = type(end).parse(partition.start)
            yield from snapshot_files.to_batches(read_changes(self.capture, start, end))

    def commit(self, end: _Offset) -> None:
        snapshot_files.delete_chunks(self.capture.snapshot_folder, before=end["chunk"])
