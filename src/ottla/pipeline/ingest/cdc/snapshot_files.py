"""The files of a snapshot: its records, in columns, beside the checkpoint, until they are committed.

A snapshot cannot be taken twice, so batches read files, which can be read again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.envelope import Record
from ottla.pipeline.ingest.cdc.state_files import written

Item = TypeVar("Item")

# Spark's and Arrow's name for the same columns.
SCHEMA = "key binary, value binary, topic string"
ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())])
CHUNK_ROWS = 20_000
CHUNK_BYTES = 16 << 20
CHUNKS_PER_BATCH = 8


@dataclass
class Chunk(InputPartition):
    """One file of the snapshot."""

    index: int


def chunk_path(folder: Path, index: int) -> Path:
    return folder / f"{index:06d}.arrow"


def read_chunk(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.OSFile(str(path), "rb") as file:
            yield from pa.ipc.open_stream(file)
    except FileNotFoundError:
        raise PipelineError(
            f"The file {path} of the snapshot is gone.",
            "Remove the source's checkpoint folder to begin with a new snapshot. Where Spark runs on several "
            "machines, the checkpoints must be in a folder that all of them see.",
        ) from None


def drop_chunks(folder: Path, before: int) -> None:
    """What has been committed is not read again."""
    for path in folder.glob("*.arrow"):
        if int(path.stem) < before:
            path.unlink(missing_ok=True)


def write_chunks(folder: Path, records: Iterable[Record]) -> int:
    """Returns how many files there are."""
    chunks = 0
    for batch in batched(records):
        with written(chunk_path(folder, chunks)) as file, pa.ipc.new_stream(file, ARROW) as out:
            out.write_batch(batch)
        chunks += 1
    return chunks


def batched(records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
    """Records in columns, as many at once as a task or a file should hold."""
    held: list[Record] = []
    size = 0
    for record in records:
        held.append(record)
        size += len(record.value or b"")
        if len(held) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield in_columns(held)
            held, size = [], 0
    if held:
        yield in_columns(held)


def in_columns(records: list[Record]) -> pa.RecordBatch:
    topics, keys, values = zip(*records, strict=True)
    return pa.record_batch(
        [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(topics, pa.string())],
        schema=ARROW,
    )


def marking_last(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    iterator = iter(items)
    for held in iterator:
        for item in iterator:
            yield held, False
            held = item
        yield held, True


def chunks_of_batch(done: int, chunks: int, bounded: bool) -> int:
    """How many files are behind the next batch."""
    return min(done + CHUNKS_PER_BATCH, chunks) if bounded else chunks


def check_begin(done: int, folder: Path) -> None:
    """Raises where files of a snapshot were read, and its manifest is gone."""
    if done:
        raise PipelineError(
            f"The snapshot in {folder} is gone, and was not whole in the topic yet.",
            "Remove the source's checkpoint folder to begin with a new one.",
        )
