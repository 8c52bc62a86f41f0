"""The manifests of an archive are replaced by an older copy: no file that has the only copy of a record is deleted."""

import logging
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.written_archive import ROWS, Written
from tests.unit.pipeline.archive.archive_samples import QUERY, a_batch

from ottla.pipeline.archive.batch_writer import _remove_earlier_attempts
from ottla.pipeline.archive.layout import batch_name, merge_name
from ottla.pipeline.archive.manifest import DataFile, Merge
from ottla.pipeline.archive.merge import KEEP_UNNAMED_MS, delete_leftovers

# another one of the same hour covers the first ten
MERGED_OFFSETS = range(ROWS, 3 * ROWS)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """With one batch."""
    written = Written(tmp_path / "archive with space")
    written.batch()
    return written


def clean(spark: SparkSession, written: Written) -> None:
    """Long after all merges."""
    archived = written.archive.load()
    delete_leftovers(spark, written.archive, archived, archived.histories, 2 * KEEP_UNNAMED_MS)


def has(written: Written, file: DataFile) -> bool:
    return written.archive.files.exists(file.path)


def test_a_merged_file_is_deleted_only_if_the_manifests_cover_all_its_offsets(
    spark: SparkSession, written: Written, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = written.file(merge_name(1, "killed"), range(ROWS))
    shutil.copytree(written.folder / "_manifests", tmp_path / "copy")
    small = []
    for _ in range(2):
        written.batch()
        small.append(written.small[-1])
    merged = written.file(merge_name(1, "done"), MERGED_OFFSETS)
    written.archive.commit_merge(Merge(2, (merged,), tuple(file.path for file in small)), lambda _: None)
    clean(spark, written)
    assert [has(written, file) for file in (*small, killed, merged)] == [False, False, False, True]

    # The hour has a file that the older manifests name, and no file that they name is missing.
    shutil.rmtree(written.folder / "_manifests")
    (tmp_path / "copy").rename(written.folder / "_manifests")
    written = Written(written.folder)
    damaged = written.file(merge_name(1, "damaged"), range(ROWS))
    (written.folder / damaged.path).write_bytes(b"PAR1 and nothing more")
    with caplog.at_level(logging.WARNING):
        clean(spark, written)
    assert has(written, merged)
    assert has(written, damaged)
    assert "2 files in the archive at" in caplog.text
    assert "have records that its manifests do not cover, or cannot be read" in caplog.text

    # Once the records are archived again, the file has nothing that others do not have.
    again = written.file("again", MERGED_OFFSETS)
    written.archive.commit(a_batch(1, [("raw", 0, ROWS, 3 * ROWS)], again), lambda _: None)
    clean(spark, written)
    assert not has(written, merged)
    assert [has(written, file) for file in (again, damaged)] == [True, True]


def test_files_of_an_earlier_attempt_are_removed_only_if_the_batch_covers_their_offsets(
    spark: SparkSession, written: Written
) -> None:
    """A checkpoint that was restored with the manifests plans its next batch anew, of what the topic has left."""
    batch = batch_name(1, QUERY)
    attempt = written.file(f"{batch}-1a", range(ROWS, 2 * ROWS))
    longer = written.file(f"{batch}-2b", range(ROWS + 5, 2 * ROWS + 5))
    ours = written.file(f"{batch}-3c", range(ROWS, 2 * ROWS))
    written.archive.commit(a_batch(1, [("raw", 0, ROWS, 2 * ROWS)], ours), lambda _: None)
    _remove_earlier_attempts(spark, written.archive, batch)
    assert [has(written, file) for file in (attempt, longer, ours)] == [False, True, True]
