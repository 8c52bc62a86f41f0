"""Another program writes into the Delta table of an archive: it is rejected, and nothing of the archive is lost.

Only a table of an older Ottla lets it, until the archive adds its next version.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.other_writers import FEATURE, WRITES, try_to_write
from tests.pipeline.table_readers import Reader
from tests.pipeline.written_archive import OF_AN_OLDER_OTTLA, ROWS, Written

from ottla.pipeline.archive import delta, delta_actions, store
from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.verification import _check_delta_log

REJECTED = rf"[Uu]nsupported table features required: .*{FEATURE}"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """With files that a merge superseded, and one of a batch that is not added yet."""
    monkeypatch.setattr(store, "CONDENSE_AT", 4)
    written = Written(tmp_path / "archive")
    fill(written)
    written.file("b9999", range(1000, 1010))
    return written


def fill(written: Written) -> None:
    for _ in range(3):
        written.batch()
    written.merge()
    written.batch()


def files(written: Written) -> set[str]:
    return {found.path for found in written.archive.files.below("raw") if found.path.endswith("0.parquet")}


def check_whole(written: Written) -> None:
    """For readers of the manifests; the Delta table may have other records."""
    sql = 'select count(*), count(distinct "offset"), max("offset") from kept'
    count = written.batches * ROWS
    assert list(query(sql, {"kept": str(written.folder)}, {})[1]) == [(count, count, count - 1)]


@pytest.mark.parametrize("name", WRITES)
def test_delta_rs_does_not_write_into_the_table(written: Written, name: str) -> None:
    before = files(written)
    with pytest.raises(DeltaError, match=REJECTED):
        WRITES[name](written.folder / "raw")
    assert files(written) == before
    assert _check_delta_log(written.archive, "raw") == []
    written.batch()
    assert written.read() == list(range(5 * ROWS))
    check_whole(written)


def test_the_archive_writes_while_others_try_to(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    other = Reader(
        "another writer", written.folder / "raw", lambda: try_to_write(written.folder / "raw"), 0.0
    )
    other.start()
    for _ in range(5):
        fill(written)
    other.end()
    assert other.found
    assert written.read() == list(range(written.batches * ROWS))
    assert _check_delta_log(written.archive, "raw") == []
    check_whole(written)


def test_a_checkpoint_or_a_cleanup_of_another_program_changes_nothing(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", 3)
    DeltaTable(written.folder / "raw").create_checkpoint()
    DeltaTable(written.folder / "raw").cleanup_metadata()
    for _ in range(3):
        # The checkpoint to which the other program's _last_checkpoint refers is deleted meanwhile.
        fill(written)
        assert written.read() == list(range(written.batches * ROWS))
        assert _check_delta_log(written.archive, "raw") == []


@pytest.mark.parametrize("name", ["append", "delete", "optimize"])
def test_what_was_written_into_the_table_of_an_older_ottla_is_reported_and_changes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as older:
        older.setattr(delta_actions, "_PROTOCOL", OF_AN_OLDER_OTTLA)
        written = Written(tmp_path / "archive")
        fill(written)
    before = files(written)
    WRITES[name](written.folder / "raw")
    (damage,) = _check_delta_log(written.archive, "raw")
    assert "files that the manifests do not name" in damage.what
    # From the next version on it is rejected.
    written = again(written)
    written.batch()
    with pytest.raises(DeltaError, match=REJECTED):
        WRITES[name](written.folder / "raw")
    assert before <= files(written)
    check_whole(written)

    # As the guide says: without the log the next start writes another.
    written.archive.files.delete("raw/_delta_log")
    written = again(written)
    written.publish()
    assert _check_delta_log(written.archive, "raw") == []
    assert written.read() == list(range(5 * ROWS))


def again(written: Written) -> Written:
    """In another process."""
    started = Written(written.folder)
    started.batches, started.small = written.batches, written.small
    return started


def test_sparks_delta_reads_the_table_and_does_not_write_into_it(spark: SparkSession, tmp_path: Path) -> None:
    jars = jars_for("delta")
    if isinstance(jars, str):
        pytest.skip(jars)
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    written = Written(tmp_path / "archive")
    fill(written)
    again(written).batch()
    before, path = files(written), str(written.folder / "raw")
    session: Any = spark
    table = session._jvm.io.delta.tables.DeltaTable.forPath(session._jsparkSession, path)
    rows = spark.read.format("delta").load(path)
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: rows.limit(1).write.format("delta").mode("append").save(path),
        "overwrite": lambda: rows.limit(1).write.format("delta").mode("overwrite").save(path),
        "optimize": lambda: table.optimize().executeCompaction(),
    }
    for write in writes.values():
        with pytest.raises(Exception, match=rf"DELTA_UNSUPPORTED_FEATURES_FOR_WRITE.*{FEATURE}"):
            write()
    assert files(written) == before
    assert sorted(row.offset for row in rows.select("offset").collect()) == list(range(5 * ROWS))
    # A stream that follows the table passes the version that reserves it again.
    followed = spark.readStream.format("delta").option("startingVersion", "0").load(path).select("offset")
    query = followed.writeStream.format("memory").queryName("followed").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sorted(row.offset for row in spark.table("followed").collect()) == list(range(5 * ROWS))
