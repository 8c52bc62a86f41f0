"""Small files are merged while the archive runs, within limits, and an error in it does not stop the archive."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.archive.archive_samples import a_batch, a_file

from ottla.pipeline.archive import automatic_merge
from ottla.pipeline.archive import merge as merging
from ottla.pipeline.archive.automatic_merge import FILES_MIN, AutomaticMerge
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.merge import CLOSED_AFTER_MS, HOUR_MS, KEEP_SUPERSEDED_MS, split_into_rounds
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError

END_OF_SEVEN_MS = 1_769_846_400_000
NO_SPARK: Any = None


class Running:
    """An archive whose merges write files without Spark."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archive = Archive.at(str(folder))
        self.monkeypatch = monkeypatch
        self.now_ms = END_OF_SEVEN_MS + CLOSED_AFTER_MS
        self.merge = AutomaticMerge(self.archive, lambda: self.now_ms)
        self.batches = 0
        self.fails = False
        self.rounds: list[int] = []
        monkeypatch.setattr(merging, "_write_merged", self.write)

    def add(self, *files: DataFile) -> None:
        for file in files:
            self.archive.files.create(file.path, "small")
        self.archive.commit(a_batch(self.batches, [], *files), lambda _: None)
        self.batches += 1

    def write(self, spark: None, archive: Archive, files: list[DataFile], name: str) -> tuple[DataFile, ...]:
        if self.fails:
            raise PipelineError("A file is damaged.", "Restore it.")
        self.rounds.append(len(files))
        last = max(file.slices[0].last for file in files)
        first = min(file.slices[0].first for file in files)
        merged = a_file(name, (0, first, last), topic=files[0].topic, hour=files[0].hour.hour)
        archive.files.create(merged.path, "merged")
        return (merged,)

    def run(self, *histories: str) -> None:
        self.merge.run(NO_SPARK, [], histories or ("raw",))

    @property
    def paths(self) -> set[str]:
        return set(self.archive.load().files)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(tmp_path, monkeypatch)


def small(count: int, **where: Any) -> list[DataFile]:
    return [a_file(f"b{number}", (0, number, number), **where) for number in range(count)]


def test_the_small_files_of_a_past_hour_are_merged_and_deleted_a_day_later(running: Running) -> None:
    files = small(FILES_MIN)
    running.add(*files)
    running.run()
    assert running.rounds == [FILES_MIN]
    assert len(running.paths) == 1
    assert all(running.archive.files.exists(file.path) for file in files)
    running.now_ms += KEEP_SUPERSEDED_MS
    running.run()
    assert not any(running.archive.files.exists(file.path) for file in files)
    assert all(running.archive.files.exists(path) for path in running.paths)


def test_a_past_hour_keeps_one_file_of_many_batches(running: Running) -> None:
    hours, in_hour = 5, 6
    for at in range(hours * in_hour):
        hour, running.now_ms = at // in_hour, END_OF_SEVEN_MS + at * HOUR_MS // in_hour
        running.add(a_file(f"b{at}", (0, at, at), hour=8 + hour))
        running.run()
        # those of this hour and of the one that may still get records, and one of each earlier hour
        assert len(running.paths) <= 2 * in_hour + hour


def test_few_late_files_wait_for_more(running: Running) -> None:
    running.add(*small(FILES_MIN - 1))
    running.run()
    assert running.rounds == []


def test_an_hour_that_is_not_over_and_a_history_of_another_stage_stay(running: Running) -> None:
    running.add(*small(FILES_MIN, hour=8), *small(FILES_MIN, topic="fly"))
    running.run("raw")
    assert running.rounds == []


def test_it_looks_once_in_an_hour(running: Running) -> None:
    running.run()
    running.add(*small(FILES_MIN))
    running.run()
    assert running.rounds == []
    running.now_ms += HOUR_MS
    running.run()
    assert running.rounds == [FILES_MIN]


def test_after_its_time_it_leaves_the_rest_to_the_next_pause(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_merge, "_ROUND_BYTES", FILES_MIN * 1000)
    running.add(*small(FILES_MIN, hour=6), *small(FILES_MIN, hour=5))
    monkeypatch.setattr(automatic_merge, "_ROUNDS_S", -1.0)
    running.run()
    assert running.rounds == []
    monkeypatch.setattr(automatic_merge, "_ROUNDS_S", 60.0)
    running.run()
    assert running.rounds == [FILES_MIN, FILES_MIN]


def test_small_files_are_deleted_a_day_later_also_while_rounds_wait(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_merge, "_ROUND_BYTES", FILES_MIN * 1000)
    early, late = small(FILES_MIN, hour=5), small(FILES_MIN, hour=6)
    running.add(*early, *late)
    now_s = 0.0

    def write_slowly(*given: Any) -> tuple[DataFile, ...]:
        nonlocal now_s
        now_s += 60.0
        return running.write(*given)

    with monkeypatch.context() as slow:
        slow.setattr("ottla.pipeline.archive.automatic_merge.time.monotonic", lambda: now_s)
        slow.setattr(merging, "_write_merged", write_slowly)
        running.run()
    assert running.rounds == [FILES_MIN]
    assert all(running.archive.files.exists(file.path) for file in early)
    running.now_ms += KEEP_SUPERSEDED_MS
    monkeypatch.setattr(automatic_merge, "_ROUNDS_S", -1.0)
    running.run()
    assert running.rounds == [FILES_MIN]
    assert not any(running.archive.files.exists(file.path) for file in early)
    assert all(running.archive.files.exists(file.path) for file in late)


def test_an_hour_that_is_larger_than_a_round_is_merged_in_parts() -> None:
    files = {file.hour: [file] for file in small(1)}
    (hour,) = files
    rounds = split_into_rounds({hour: small(7)}, 3000)
    assert [[file.slices[0].first for file in one] for one in rounds] == [[0, 1, 2], [3, 4, 5]]
    assert split_into_rounds({hour: small(3, size=2000)}, 3000) == []


def test_an_error_is_logged_and_the_archive_continues(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    files = small(FILES_MIN)
    running.add(*files)
    running.fails = True
    with caplog.at_level(logging.WARNING):
        running.run()
    assert "were not merged: A file is damaged. Restore it." in caplog.text
    assert running.paths == {file.path for file in files}
    running.fails = False
    running.now_ms += HOUR_MS
    running.run()
    assert len(running.paths) == 1


def test_nothing_is_deleted_while_a_manifest_is_missing(running: Running, tmp_path: Path) -> None:
    running.add(*small(1, hour=5))
    running.add(*small(FILES_MIN))
    running.run()
    (tmp_path / "_manifests" / "0000000001.json").unlink()
    running.now_ms += KEEP_SUPERSEDED_MS
    before = {found.path for found in running.archive.files.below("raw")}
    running.run()
    assert {found.path for found in running.archive.files.below("raw")} == before


@pytest.mark.parametrize("is_new_hour", [False, True], ids=["the same files", "later files"])
def test_nothing_is_deleted_after_the_manifests_are_replaced_by_an_older_copy(
    running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_new_hour: bool
) -> None:
    manifests, copy = tmp_path / "_manifests", tmp_path / "copy"
    running.add(*small(1, hour=5) if is_new_hour else small(FILES_MIN))
    shutil.copytree(manifests, copy)
    if is_new_hour:
        running.add(*small(FILES_MIN))
    running.run()
    (merged,) = (path for path in running.paths if "merge-" in path)
    running.now_ms += KEEP_SUPERSEDED_MS
    running.run()
    assert running.archive.files.exists(merged)
    shutil.rmtree(manifests)
    copy.rename(manifests)
    started = Running(tmp_path, running.monkeypatch)
    started.now_ms = running.now_ms + 3 * KEEP_SUPERSEDED_MS
    with caplog.at_level(logging.WARNING):
        started.run()
    assert started.archive.files.exists(merged)
    if not is_new_hour:
        assert "4 files that the manifests of the archive at" in caplog.text
        assert "the first is raw/date=2026-01-31/hour=07/b0-000.parquet" in caplog.text
