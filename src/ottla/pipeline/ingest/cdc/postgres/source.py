"""`ottla-postgres`: the changes of a PostgreSQL database as a stream of records, whose offsets are places in its log.

An offset is the number of the snapshot's files that are behind it, and a place in the log once all of them are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.pipeline.ingest.cdc import snapshot_files
from ottla.pipeline.ingest.cdc.postgres.changes import read_changes
from ottla.pipeline.ingest.cdc.postgres.lsn import lsn_text, parse_lsn
from ottla.pipeline.ingest.cdc.postgres.server import advance, end_of_log
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.snapshot import PostgresManifest, take
from ottla.pipeline.ingest.cdc.retry import waiting
from ottla.pipeline.ingest.cdc.snapshot_files import SCHEMA, Chunk

BEGIN = {"chunk": 0, "lsn": ""}
MEGABYTE = 1 << 20

Offset = dict[str, Any]


@dataclass
class LogRange(InputPartition):
    """The transactions whose commits lie from `start` on and before `end`."""

    start: int
    end: int


class PostgresDataSource(DataSource):
    """Its one option `capture` is a `PostgresCapture` as JSON: it is used through the stage."""

    @classmethod
    def name(cls) -> str:
        return "ottla-postgres"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> "PostgresStreamReader":
        return PostgresStreamReader(PostgresCapture.from_option(self.options["capture"]))


class PostgresStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, capture: PostgresCapture) -> None:
        self.capture = capture
        self.is_bounded_run = False
        self.target: int | None = None
        self.known: Offset | None = None

    def initialOffset(self) -> Offset:
        return dict(BEGIN)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.capture.max_wal_mb_per_batch * MEGABYTE)

    def prepareForTriggerAvailableNow(self) -> None:
        self.is_bounded_run = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        bounded = not isinstance(limit, ReadAllAvailable)
        if not start["lsn"]:
            manifest = PostgresManifest.load(self.capture.snapshot_folder)
            if manifest is None:
                snapshot_files.check_begin(start["chunk"], self.capture.snapshot_folder)
                manifest = waiting(self.capture, take)
            chunk = snapshot_files.chunks_of_batch(start["chunk"], manifest.chunks, bounded)
            return {"chunk": chunk, "lsn": lsn_text(manifest.lsn) if chunk == manifest.chunks else ""}
        return {**start, "lsn": lsn_text(self.end_of_batch(parse_lsn(start["lsn"]), bounded))}

    def end_of_batch(self, start: int, bounded: bool) -> int:
        """A run of what is there goes to where the log ended when it first came here: before, there is no slot."""
        current = waiting(self.capture, end_of_log)
        self.known = {"lsn": lsn_text(current)}
        if self.is_bounded_run and self.target is None:
            self.target = current
        end = max(start, current if self.target is None else self.target)
        return min(end, start + self.capture.max_wal_mb_per_batch * MEGABYTE) if bounded else end

    def reportLatestOffset(self) -> Offset | None:
        return self.known

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if end["chunk"] > start["chunk"]:
            return [Chunk(index) for index in range(start["chunk"], end["chunk"])]
        if start["lsn"] == end["lsn"] or not start["lsn"]:
            return []
        return [LogRange(parse_lsn(start["lsn"]), parse_lsn(end["lsn"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Chunk):
            yield from snapshot_files.read_chunk(
                snapshot_files.chunk_path(self.capture.snapshot_folder, partition.index)
            )
        elif isinstance(partition, LogRange):
            yield from snapshot_files.batched(read_changes(self.capture, partition.start, partition.end))

    def commit(self, end: Offset) -> None:
        snapshot_files.drop_chunks(self.capture.snapshot_folder, before=end["chunk"])
        if end["lsn"]:
            advance(self.capture, parse_lsn(end["lsn"]))
