"""The files of a snapshot: its records as Arrow chunks, and the manifest that says that all of them are there.

A snapshot cannot be taken twice. So its records are written to files first, and batches read the files, which can be
read again. A chunk is deleted once its records are committed.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.envelope import Change, Record, Row
from ottla.pipeline.ingest.cdc.state_files import open_state_file, write_state_file

_Item = TypeVar("_Item")

# The same columns for Spark and for Arrow.
SCHEMA = "key binary, value binary, topic string"
_ARROW_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())])
_MANIFEST = "manifest.json"
CHUNK_ROWS = 20_000
_CHUNK_BYTES = 16 << 20
CHUNKS_PER_BATCH = 8


@dataclass(frozen=True)
class SnapshotManifest:
    """The last file of a snapshot to be written: a snapshot without it was interrupted."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        try:
            return cls(**json.loads((folder / _MANIFEST).read_text()))
        except FileNotFoundError:
            return None

    def save(self, folder: Path) -> None:
        write_state_file(folder / _MANIFEST, json.dumps(asdict(self)))


@dataclass
class Chunk(InputPartition):
    """One file of the snapshot, which one task reads."""

    index: int


def snapshot_records(rows: Iterable[tuple[Change, Row]]) -> Iterator[Record]:
    """The last row is marked: who reads the topic knows that the snapshot is complete."""
    for (change, row), is_last in _mark_last(rows):
        marked = change._replace(source=change.source.marked_last()) if is_last else change
        yield marked.read(row)


def _mark_last(items: Iterable[_Item]) -> Iterator[tuple[_Item, bool]]:
    iterator = iter(items)
    for held in iterator:
        for item in iterator:
            yield held, False
            held = item
        yield held, True


def write_chunks(folder: Path, records: Iterable[Record]) -> int:
    """Returns the number of files."""
    chunks = 0
    for batch in to_batches(records):
        with (
            open_state_file(_chunk_path(folder, chunks)) as file,
            pa.ipc.new_stream(file, _ARROW_SCHEMA) as out,
        ):
            out.write_batch(batch)
        chunks += 1
    return chunks


def read_chunk(folder: Path, chunk: Chunk) -> Iterator[pa.RecordBatch]:
    path = _chunk_path(folder, chunk.index)
    try:
        with pa.OSFile(str(path), "rb") as file:
            yield from pa.ipc.open_stream(file)
    except FileNotFoundError:
        raise PipelineError(
            f"The file {path} of the snapshot is missing.",
            "Remove the source's checkpoint folder to start over with a new snapshot. If Spark runs on several "
            "machines, put the checkpoints into a folder that all of them see.",
        ) from None


def delete_chunks(folder: Path, before: int) -> None:
    """Deletes the chunks below `before`: what is committed is not read again."""
    for path in folder.glob("*.arrow"):
        if int(path.stem) < before:
            path.unlink(missing_ok=True)


def _chunk_path(folder: Path, index: int) -> Path:
    return folder / f"{index:06d}.arrow"


def to_batches(records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the size that a chunk, or one batch of a task, should have."""
    held: list[Record] = []
    size = 0
    for record in records:
        held.append(record)
        size += len(record.value or b"")
        if len(held) >= CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield _to_arrow(held)
            held, size = [], 0
    if held:
        yield _to_arrow(held)


def _to_arrow(records: list[Record]) -> pa.RecordBatch:
    topics, keys, values = zip(*records, strict=True)
    return pa.record_batch(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(topics, pa.string())],
        schema=_ARROW_SCHEMA,
    )


def end_of_chunks(start: int, chunks: int, is_limited: bool) -> int:
    """The end of a batch that begins with the chunk `start`."""
    return min(start + CHUNKS_PER_BATCH, chunks) if is_limited else chunks


def check_not_started(start: int, folder: Path) -> None:
    """Raises PipelineError if chunks of a snapshot were read, but its manifest is missing."""
    if start:
        raise PipelineError(
            f"The snapshot in {folder} is missing, and not all of its rows are in the topic yet.",
            "Remove the source's checkpoint folder to start over with a new snapshot.",
        )
