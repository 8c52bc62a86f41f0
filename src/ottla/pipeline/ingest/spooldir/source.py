"""`format("ottla-spooldir")`: the files of a folder as a stream of key, value and headers.

The offset is an entry of the log of taken files, so only the log decides what is in a batch.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile
from ottla.pipeline.ingest.spooldir.rows import COLUMNS, rows_of
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings, from_options
from ottla.pipeline.ingest.spooldir.spool import Spool
from ottla.pipeline.spark.reader_process import QueryReader


class _Pieces(InputPartition):
    """One entry of the log, which one task reads."""

    def __init__(self, pieces: list[tuple[TakenFile, Piece]]) -> None:
        self.pieces = pieces


class SpoolDirDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-spooldir"

    def schema(self) -> StructType:
        return COLUMNS

    def streamReader(self, schema: StructType) -> "SpoolDirReader":
        return SpoolDirReader(settings_of(self.options))


def settings_of(options: Mapping[str, str]) -> SpoolDirSettings:
    settings = from_options(options)
    if not settings.log:
        raise PipelineError(
            'format("ottla-spooldir") has no `log`.', "Name a folder for its log of taken files."
        )
    return settings


class SpoolDirReader(QueryReader):
    """One on the driver, for as long as the query runs, and one in every task, which only reads."""

    def __init__(self, settings: SpoolDirSettings) -> None:
        self.settings = settings
        self._spool: Spool | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"entry": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self.settings.max_bytes_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._opened().freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark calls it when the batch before is in its commit log: everything below `start` is committed.

        It calls `commit` only with the next batch that has data, so never after the last one.
        """
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else math.inf
        return {"entry": self._opened().latest(start["entry"], bytes_max)}

    def reportLatestOffset(self) -> dict[str, Any]:
        spool = self._opened()
        waiting_bytes = sum(file.identity.size for file in spool.waiting)
        return {"entry": spool.log.end, "files_waiting": len(spool.waiting), "bytes_waiting": waiting_bytes}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Pieces(pieces) for pieces in self._opened().entries(start["entry"], end["entry"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Pieces)
        return rows_of(partition.pieces)

    def stop(self) -> None:
        if self._spool is not None:
            self._spool.log.close()
        super().stop()

    def _opened(self) -> Spool:
        if self._spool is None:
            spool = Spool(self.settings)
            spool.open()
            self._spool = spool
        return self._spool
