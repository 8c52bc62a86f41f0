"""What processes do to an archive that `killed_process` kills. Each function gets the archive's folder.

A merge writes its files with pyarrow, because a process with a JVM cannot be started for each of its file operations.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# pyarrow imports the first two late, and each child of a fork would do so again.
import pandas as pd  # noqa: F401
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.pipeline.archive import batch_writer, delta, store
from ottla.pipeline.archive import merge as merging
from ottla.pipeline.archive.layout import STAGING
from ottla.pipeline.archive.manifest import DataFile, Slice
from ottla.pipeline.archive.store import Archive

CONDENSE_AT, CHECKPOINT_EVERY, VERSIONS_KEPT = 4, 3, 6
# The files of `Written` are of January.
NOW_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)


def publish(folder: str) -> None:
    """The start of a stage with format = "delta"."""
    _with_small_limits()
    archive = Archive.at(folder)
    delta.publish(archive, delta.delta_logs(archive, archive.summary().histories, wanted=True))


def merge(folder: str) -> None:
    _with_small_limits()
    merging._write_merged = write_merged
    batch_writer._slices_of = slices_of
    no_spark: Any = None
    merging.merge(no_spark, folder, lambda: NOW_MS)


def _with_small_limits() -> None:
    store.CONDENSE_AT = CONDENSE_AT
    delta.CHECKPOINT_EVERY, delta.VERSIONS_KEPT = CHECKPOINT_EVERY, VERSIONS_KEPT


def write_merged(spark: Any, archive: Archive, files: Sequence[DataFile], name: str) -> tuple[DataFile, ...]:
    """The steps of the original, of files of one hour."""
    staging, hour = f"{STAGING}/{name}", files[0].hour
    folder = Path(archive.files.url().removeprefix("file://"))
    tables = [pq.ParquetFile(folder / file.path).read(use_threads=False) for file in files]
    rows = pa.concat_tables(tables)
    rows = rows.take(pc.sort_indices(rows, [("partition", "ascending"), ("offset", "ascending")]))
    target = folder / staging / f"_topic={hour.topic}" / f"date={hour.date}" / f"hour={hour.hour:02}"
    target.mkdir(parents=True)
    pq.write_table(rows, target / "part-0.parquet")
    fake: Any = type("Rows", (), {"sparkSession": None})
    merged = batch_writer.move_staged(archive, fake, staging, name)
    archive.files.delete(staging)
    return merged


def slices_of(spark: None, url: str) -> dict[str, dict[int, Slice]]:
    found = {}
    for path in Path(url.removeprefix("file://")).rglob("*.parquet"):
        offsets = (
            pq.ParquetFile(path).read(columns=["offset"], use_threads=False).column("offset").to_pylist()
        )
        found[batch_writer._staged_path(str(path))] = {0: Slice(min(offsets), max(offsets), len(offsets))}
    return found
