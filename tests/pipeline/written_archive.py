"""An archive whose files are written without Spark."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.unit.pipeline.archive.archive_samples import a_batch

from ottla.pipeline.archive.delta import DeltaLog, publish
from ottla.pipeline.archive.layout import Hour, data_file, topic_of
from ottla.pipeline.archive.manifest import DataFile, Merge
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive

ROWS = 10
# the protocol of its Delta tables, which does not stop other writers
OF_AN_OLDER_OTTLA = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
COLUMNS = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "leaderEpoch": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


class Written:
    """An archive of a topic with one partition, whose files have rows."""

    def __init__(self, folder: Path, topic: str = "raw", *, is_delta: bool = True) -> None:
        """`topic` is the history."""
        self.folder = folder
        self.is_delta = is_delta
        self.topic = topic
        self.archive = Archive.at(str(folder))
        self.log = DeltaLog(self.archive.files, topic)
        self.batches = 0
        self.small: list[DataFile] = []

    def batch(self) -> None:
        first = self.batches * ROWS
        self.small.append(self.file(f"b{self.batches:04}", range(first, first + ROWS)))
        batch = a_batch(self.batches, [(self.topic, 0, first, first + ROWS)], self.small[-1])
        topic_ids = {self.topic: self.topic.partition("@")[2] or "first"}
        self.archive.commit(replace(batch, topic_ids=topic_ids), lambda _: None)
        self.batches += 1
        self.publish()

    def merge(self) -> None:
        offsets = [one for file in self.small for one in range(file.slices[0].first, file.slices[0].last + 1)]
        merged = self.file(f"m{self.batches:04}", offsets)
        superseded = tuple(file.path for file in self.small)
        self.archive.commit_merge(Merge(1, (merged,), superseded), lambda _: None)
        self.small = [merged]
        self.publish()

    def publish(self) -> None:
        publish(self.archive, [self.log] if self.is_delta else [])
        self.archive.condense()

    def file(self, name: str, offsets: Iterable[int]) -> DataFile:
        rows = [
            {
                "topic": topic_of(self.topic),
                "partition": 0,
                "offset": one,
                "value": str(one).encode(),
                "headers": [{"key": "n"}],
            }
            for one in offsets
        ]
        path = data_file(Hour(self.topic, "2026-01-31", 7), name, 0)
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=COLUMNS), target)
        first, last = rows[0]["offset"], rows[-1]["offset"]
        assert isinstance(first, int)
        assert isinstance(last, int)
        return DataFile(path, target.stat().st_size, {0: Slice(first, last, len(rows))})

    def read(self, version: int | None = None) -> list[int]:
        table = DeltaTable(self.folder / self.topic, version=version).to_pyarrow_table(
            columns=["offset", "value"]
        )
        assert all(row["value"] == str(row["offset"]).encode() for row in table.to_pylist())
        return sorted(table.column("offset").to_pylist())
