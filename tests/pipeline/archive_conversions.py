"""What processes do to an archive that `killed_process` kills. Each function gets the archive's folder.

A merge writes its files with pyarrow, because a process with a JVM cannot be started for each of its file operations.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

# pyarrow imports the first two late, and each child of a fork would do so again.
import pandas as pd  # noqa: F401
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.pipeline.archive import delta, staging, store
from ottla.pipeline.archive import merge as merging
from ottla.pipeline.archive.layout import STAGING, Hour, staged_file
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.slices import Slice
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
    staging._slices_of = slices_of
    no_spark: Any = None
    merging.merge(no_spark, folder, lambda: NOW_MS)


def _with_small_limits() -> None:
    store.CONDENSE_AT = CONDENSE_AT
    delta.CHECKPOINT_EVERY, delta.VERSIONS_KEPT = CHECKPOINT_EVERY, VERSIONS_KEPT


def write_merged(spark: Any, archive: Archive, files: Sequence[DataFile], name: str) -> tuple[DataFile, ...]:
    """The steps of the original, of files of one hour."""
    folder = Path(archive.files.url().removeprefix("file://"))
    tables = [pq.ParquetFile(folder / file.path).read(use_threads=False) for file in files]
    rows = pa.concat_tables(tables)
    rows = rows.take(pc.sort_indices(rows, [("partition", "ascending"), ("offset", "ascending")]))
    hour = files[0].hour
    target = folder / STAGING / name / f"_topic={hour.topic}" / f"_hour={hours_since_epoch(hour)}" / "_task=0"
    target.mkdir(parents=True)
    pq.write_table(rows, target / "part-0.parquet")
    merged = staging.move_staged(archive, spark, f"{STAGING}/{name}", name)
    archive.files.delete(f"{STAGING}/{name}")
    return merged


def hours_since_epoch(hour: Hour) -> int:
    return (date.fromisoformat(hour.date) - date(1970, 1, 1)).days * 24 + hour.hour


def slices_of(spark: Any, url: str) -> dict[tuple[Hour, int], dict[int, Slice]]:
    found = {}
    for path in Path(url.removeprefix("file://")).rglob("*.parquet"):
        offsets = (
            pq.ParquetFile(path).read(columns=["offset"], use_threads=False).column("offset").to_pylist()
        )
        file = staged_file(str(path), 0)
        assert file is not None
        found[file.hour, file.task] = {0: Slice(min(offsets), max(offsets), len(offsets))}
    return found
