"""`format("ottla-postgres")`: the changes of a PostgreSQL database as a stream of records.

An offset has two parts: the number of snapshot files that were read, and once all of them were, a position in the
server's log (`lsn`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
)
from pyspark.sql.types import StructType

from ottla.pipeline.ingest.cdc import snapshot_files
from ottla.pipeline.ingest.cdc.postgres.changes import read_changes
from ottla.pipeline.ingest.cdc.postgres.lsn import format_lsn, parse_lsn
from ottla.pipeline.ingest.cdc.postgres.server import advance_slot, end_of_log
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresCapture
from ottla.pipeline.ingest.cdc.postgres.snapshot import PostgresManifest, take_snapshot
from ottla.pipeline.ingest.cdc.retry import with_retries
from ottla.pipeline.ingest.cdc.snapshot_files import Chunk
from ottla.pipeline.spark.reader_process import QueryReader

_BEGIN = {"chunk": 0, "lsn": ""}
_MEGABYTE = 1 << 20

_Offset = dict[str, Any]


@dataclass
class _LogRange(InputPartition):
    """The transactions whose commits lie from `start` on and before `end`."""

    start: int
    end: int


class PostgresDataSource(DataSource):
    """Its one option `capture` is a `PostgresCapture` as JSON: the stage sets it."""

    @classmethod
    def name(cls) -> str:
        return "ottla-postgres"

    def schema(self) -> str:
        return snapshot_files.SCHEMA

    def streamReader(self, schema: StructType) -> "PostgresStreamReader":
        return PostgresStreamReader(PostgresCapture.from_option(self.options["capture"]))


class PostgresStreamReader(QueryReader):
    def __init__(self, capture: PostgresCapture) -> None:
        self.capture = capture
        self.is_available_now = False
        self.target: int | None = None
        self.known: _Offset | None = None

    def initialOffset(self) -> _Offset:
        return dict(_BEGIN)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.capture.max_wal_mb_per_batch * _MEGABYTE)

    def prepareForTriggerAvailableNow(self) -> None:
        self.is_available_now = True

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        is_limited = not isinstance(limit, ReadAllAvailable)
        if not start["lsn"]:
            manifest = PostgresManifest.load(self.capture.snapshot_folder)
            if manifest is None:
                snapshot_files.check_not_started(start["chunk"], self.capture.snapshot_folder)
                manifest = with_retries(self.capture, take_snapshot)
            chunk = snapshot_files.end_of_chunks(start["chunk"], manifest.chunks, is_limited)
            return {"chunk": chunk, "lsn": format_lsn(manifest.lsn) if chunk == manifest.chunks else ""}
        return {**start, "lsn": format_lsn(self._end_of_batch(parse_lsn(start["lsn"]), is_limited))}

    def _end_of_batch(self, start: int, is_limited: bool) -> int:
        """With the trigger AvailableNow, the end is where the log ended at the first call.

        `prepareForTriggerAvailableNow` is too early to ask for it: the slot does not exist before the snapshot.
        """
        current = with_retries(self.capture, end_of_log)
        self.known = {"lsn": format_lsn(current)}
        if self.is_available_now and self.target is None:
            self.target = current
        end = max(start, current if self.target is None else self.target)
        return min(end, start + self.capture.max_wal_mb_per_batch * _MEGABYTE) if is_limited else end

    def reportLatestOffset(self) -> _Offset | None:
        return self.known

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        if end["chunk"] > start["chunk"]:
            return [Chunk(index) for index in range(start["chunk"], end["chunk"])]
        if start["lsn"] == end["lsn"] or not start["lsn"]:
            return []
        return [_LogRange(parse_lsn(start["lsn"]), parse_lsn(end["lsn"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Chunk):
            yield from snapshot_files.read_chunk(self.capture.snapshot_folder, partition)
        elif isinstance(partition, _LogRange):
            yield from snapshot_files.to_batches(read_changes(self.capture, partition.start, partition.end))

    def commit(self, end: _Offset) -> None:
        snapshot_files.delete_chunks(self.capture.snapshot_folder, before=end["chunk"])
        if end["lsn"]:
            advance_slot(self.capture, parse_lsn(end["lsn"]))
