"""A process that makes an archive a Delta table, or merges it, is killed at each of its file operations.

At every moment the archive has each record once, and its readers find whole batches.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession
from tests.pipeline import archive_conversions
from tests.pipeline.archive_conversions import CHECKPOINT_EVERY, CONDENSE_AT, NOW_MS, VERSIONS_KEPT
from tests.pipeline.archive_jars import jars_for
from tests.pipeline.written_archive import ROWS, Written
from tests.unit.pipeline.archive.killed_process import killed_everywhere

from ottla.pipeline.archive import delta, merge, store
from ottla.pipeline.archive.embedded import query
from ottla.pipeline.archive.layout import STAGING
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.merge import KEEP_UNNAMED_MS, delete_leftovers
from ottla.pipeline.archive.verification import _check_delta_log

BATCHES = 8


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CONDENSE_AT", CONDENSE_AT)
    monkeypatch.setattr(delta, "CHECKPOINT_EVERY", CHECKPOINT_EVERY)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", VERSIONS_KEPT)


def plain(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of two histories that is no Delta table yet, with merges and condensed manifests."""
    written.is_delta = False
    fill(written)
    Written(written.folder, "raw@second", is_delta=False).batch()


def behind(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Delta table that lacks more versions than there are between two checkpoints."""
    fill(written)
    written.is_delta = False
    monkeypatch.setattr(store, "CONDENSE_AT", 100)
    fill(written)


def behind_condensed(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the versions that it lacks are condensed."""
    fill(written)
    written.is_delta = False
    fill(written)


TABLES = [plain, behind, behind_condensed]


def fill(written: Written) -> None:
    for number in range(BATCHES):
        written.batch()
        if number % 5 == 4:
            written.merge()


def offsets(written: Written) -> list[int] | None:
    """Of the Delta table; None if it does not exist yet."""
    try:
        return written.read()
    except TableNotFoundError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("make", TABLES)
def test_a_table_lacks_at_most_whole_batches_whenever_the_process_is_killed_that_publishes_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Written, pytest.MonkeyPatch], None],
) -> None:
    template = Written(tmp_path / "template")
    make(template, monkeypatch)
    expected, before = template.archive.load(), offsets(template) or []
    runs = killed_everywhere(archive_conversions.publish, template.folder, tmp_path / "runs")
    assert len(runs) > 10
    for number, run in enumerate(runs):
        killed, again = Written(run.folder), Written(run.again)
        assert killed.archive.load() == again.archive.load() == expected
        found = offsets(killed)
        if found is None:
            assert make is plain
        else:
            assert found == list(range(len(found)))
            assert len(found) % ROWS == 0
            assert len(found) >= len(before)
        check_newest(again, expected)
        if number % 4 == 0:
            check_versions(again)


def check_newest(written: Written, archived: Archived) -> None:
    assert written.read() == list(range(sum(file.records for file in archived.files_of("raw"))))
    assert written.log.position()[1] == archived.number
    assert _check_delta_log(written.archive, "raw") == []


def check_versions(written: Written) -> None:
    """Each version that is kept has whole batches."""
    newest = DeltaTable(written.folder / "raw").version()
    rows = [written.read(version) for version in range(max(0, newest - VERSIONS_KEPT), newest + 1)]
    assert all(one == list(range(len(one))) and len(one) % ROWS == 0 for one in rows)
    assert [len(one) for one in rows] == sorted(len(one) for one in rows)


@pytest.mark.slow
def test_sparks_delta_reads_a_table_whenever_the_process_is_killed_that_makes_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = jars_for("delta")
    if isinstance(jars, str):
        pytest.skip(jars)
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    template = Written(tmp_path / "template")
    plain(template, monkeypatch)
    runs = killed_everywhere(archive_conversions.publish, template.folder, tmp_path / "runs")
    logs = [run.again / "raw" / "_delta_log" for run in runs]
    # Beside the draft of the first version that a killed process left
    (log,) = random.SystemRandom().sample([log for log in logs if any(log.glob(".*"))], 1)
    rows = spark.read.format("delta").load(str(log.parent)).select("offset").collect()
    assert sorted(row.offset for row in rows) == list(range(BATCHES * ROWS))


@pytest.mark.slow
def test_a_merge_leaves_each_record_once_whenever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = Written(tmp_path / "template")
    fill(template)
    second = Written(template.folder, "raw@second")
    for _ in range(2):
        second.batch()
    before = template.archive.load()
    runs = killed_everywhere(archive_conversions.merge, template.folder, tmp_path / "runs")
    assert len(runs) > 30
    no_spark: Any = None
    monkeypatch.setattr(merge, "deletable", lambda *given: given[-1])
    for run in runs:
        check_records(Written(run.folder), before)
        again = Written(run.again).archive
        archived = again.load()
        assert len(archived.files) == 2
        later_ms = NOW_MS + KEEP_UNNAMED_MS + 1
        delete_leftovers(no_spark, again, archived, archived.histories, later_ms)
        assert Written(run.again).read() == list(range(BATCHES * ROWS))
        left = {found.path for history in archived.histories for found in again.files.below(history)}
        assert {path for path in left if "/_delta_log/" not in path} == archived.files.keys()
        assert again.files.names(STAGING) == []


def check_records(written: Written, before: Archived) -> None:
    """Everything is there once for readers of the manifests and of the Delta tables."""
    assert written.archive.summary().records == before.records
    sql = 'select count(*), count(distinct (topicId, "offset")) from kept'
    count = (BATCHES + 2) * ROWS
    assert list(query(sql, {"kept": str(written.folder)}, {})[1]) == [(count, count)]
    assert written.read() == list(range(BATCHES * ROWS))
    assert Written(written.folder, "raw@second").read() == list(range(2 * ROWS))
