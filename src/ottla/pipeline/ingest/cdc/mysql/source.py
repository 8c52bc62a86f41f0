"""`ottla-mysql`: the changes of a MariaDB or MySQL server as a stream of records, whose offsets are GTIDs.

An offset is the number of the snapshot's files that are behind it, and a position in the binlog once all of them are.
Both point to durable things, so a batch can be read again exactly: files beside the checkpoint, and transactions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc import snapshot_files
from ottla.pipeline.ingest.cdc.mysql import snapshot
from ottla.pipeline.ingest.cdc.mysql.binlog.reader import position_after, read_changes
from ottla.pipeline.ingest.cdc.mysql.positions import Place, place, place_like
from ottla.pipeline.ingest.cdc.mysql.server import current_position
from ottla.pipeline.ingest.cdc.mysql.settings import Capture
from ottla.pipeline.ingest.cdc.retry import waiting
from ottla.pipeline.ingest.cdc.snapshot_files import SCHEMA, Chunk

BEGIN = {"chunk": 0, "gtid": ""}

Offset = dict[str, Any]


@dataclass
class Changes(InputPartition):
    """The transactions after `start` up to `end`."""

    start: str
    end: str


class MySqlDataSource(DataSource):
    """Its one option `capture` is a `Capture` as JSON: it is used through the stage."""

    @classmethod
    def name(cls) -> str:
        return "ottla-mysql"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "MySqlStreamReader":
        return MySqlStreamReader(Capture.from_option(self.options["capture"]))


class MySqlStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.target: Place | None = None
        self.known: Offset | None = None

    def initialOffset(self) -> Offset:
        return dict(BEGIN)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.capture.max_transactions_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = waiting(self.capture, current_position)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        bounded = not isinstance(limit, ReadAllAvailable)
        if not start["gtid"]:
            manifest = snapshot.Manifest.load(self.capture.snapshot_folder)
            if manifest is None:
                snapshot_files.check_begin(start["chunk"], self.capture.snapshot_folder)
                manifest = waiting(self.capture, snapshot.take)
            chunk = snapshot_files.chunks_of_batch(start["chunk"], manifest.chunks, bounded)
            if start["chunk"] < manifest.chunks or manifest.position:
                done = chunk == manifest.chunks
                return {"chunk": chunk, "gtid": manifest.position if done else ""}
        return {**start, "gtid": str(self.end_of_batch(start["gtid"], bounded))}

    def end_of_batch(self, done: str, bounded: bool) -> Place:
        current = waiting(self.capture, current_position)
        start = place_like(current, done, self.capture.address)
        self.check_order(start, current)
        end = self.target if self.target is not None else current
        self.known = {"gtid": str(current)}
        if start.reaches(end):
            return start
        most = self.capture.max_transactions_per_batch
        if bounded and start.transactions_to(end) > most:
            return position_after(self.capture, start, end, most)
        return end

    def check_order(self, start: Place, current: Place) -> None:
        """A server that was set back would go on under numbers that we have seen already."""
        if not current.reaches(start):
            raise PipelineError(
                f"The binlog of {self.capture.address} ends at {str(current) or 'its beginning'}, before {start}, "
                "up to where this source has read already.",
                "The server was reset or restored. Remove the source's checkpoint folder to begin with a new snapshot.",
            )

    def reportLatestOffset(self) -> Offset | None:
        return self.known

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if end["chunk"] > start["chunk"]:
            return [Chunk(index) for index in range(start["chunk"], end["chunk"])]
        if start["gtid"] == end["gtid"] or self.is_begin(start, end):
            return []
        return [Changes(start["gtid"], end["gtid"])]

    def is_begin(self, start: Offset, end: Offset) -> bool:
        """An empty snapshot: its place in the binlog is where the changes begin, and none of them."""
        if start["gtid"]:
            return False
        manifest = snapshot.Manifest.load(self.capture.snapshot_folder)
        return manifest is not None and end["gtid"] == manifest.position

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Chunk):
            yield from snapshot_files.read_chunk(
                snapshot_files.chunk_path(self.capture.snapshot_folder, partition.index)
            )
        elif isinstance(partition, Changes):
            end = place(partition.end)
            start = type(end).parse(partition.start)
            yield from snapshot_files.batched(read_changes(self.capture, start, end))

    def commit(self, end: Offset) -> None:
        snapshot_files.drop_chunks(self.capture.snapshot_folder, before=end["chunk"])
