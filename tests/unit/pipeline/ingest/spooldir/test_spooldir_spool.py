"""Files in a spool directory: taken in order, read once, finished when committed, also after errors and crashes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.ingest.spooldir.spooldir_query import Crash, Query, steps_counted

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir import log as log_module
from ottla.pipeline.ingest.spooldir import spool as spool_module
from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile
from ottla.pipeline.ingest.spooldir.pieces import next_piece
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.spool import Spool

Settings = Callable[..., SpoolDirSettings]


@pytest.fixture
def spool_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(tmp_path: Path, spool_folder: Path) -> Settings:
    def make(**more: Any) -> SpoolDirSettings:
        defaults = {"settle_s": 0.0, "log": str(tmp_path / "log"), "done_folder": str(tmp_path / "done")}
        return SpoolDirSettings(str(spool_folder), "topic", **{**defaults, **more})

    return make


def put(folder: Path, name: str, data: bytes, mtime: int = 1) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (mtime, mtime))
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_are_taken_oldest_first_then_by_name_and_finished(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "b", b"3\n", mtime=5)
    put(spool_folder, "c", b"1\n2", mtime=4)
    put(spool_folder, "a", b"", mtime=5)
    put(spool_folder, "d.tmp", b"not finished\n")
    put(spool_folder, "inner/e", b"deeper\n")
    query = Query(settings())
    query.run()
    assert query.records() == [("c", 1, b"1"), ("c", 2, b"2"), ("b", 1, b"3")]
    assert names(spool_folder) == ["a.done", "b.done", "c.done", "d.tmp", "inner/e"]


def test_files_of_subfolders_are_taken_if_recursive(spool_folder: Path, settings: Settings) -> None:
    put(spool_folder, "inner/e", b"deeper\n")
    put(spool_folder, ".hidden/f", b"not this\n")
    query = Query(settings(recursive=True, after="move", done_folder=str(spool_folder / "done")))
    query.run()
    query.run()
    assert query.records() == [("inner/e", 1, b"deeper")]
    assert names(spool_folder) == [".hidden/f", "done/inner/e"]


@pytest.mark.parametrize(
    ("after", "left", "done"),
    [("rename", ["a.done"], []), ("move", [], ["a"]), ("delete", [], []), ("keep", ["a"], [])],
)
def test_a_finished_file_is_renamed_moved_deleted_or_kept(
    after: str, left: list[str], done: list[str], tmp_path: Path, spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"1\n")
    query = Query(settings(after=after))
    query.run()
    query.run()
    assert (query.values(), names(spool_folder), names(tmp_path / "done")) == ([b"1"], left, done)


@pytest.mark.parametrize("after", ["rename", "move", "delete", "keep"])
@pytest.mark.parametrize("crash_again_at", [None, 2])
def test_killed_at_any_step_each_record_is_written_once(
    after: str, crash_again_at: int | None, tmp_path: Path
) -> None:
    """Every step in turn: a sync of the log, a rename, Spark's own logs, a partition of the sink."""
    expected = sorted(
        [("big", n, b"%04d" % n) for n in range(1, 31)] + [("small", 1, b"x"), ("other", 1, b"y")]
    )
    crash_at, crashed = 0, True
    while crashed:
        crash_at += 1
        home = tmp_path / str(crash_at)
        spool = home / "spool"
        put(spool, "big", b"".join(b"%04d\n" % n for n in range(1, 31)))
        put(spool, "small", b"x\n", mtime=2)
        put(spool, "empty", b"", mtime=3)
        put(spool, "other", b"y\n", mtime=4)
        query = Query(
            SpoolDirSettings(
                str(spool),
                "topic",
                settle_s=0.0,
                after=after,
                log=str(home / "log"),
                done_folder=str(home / "done"),
                split_bytes=25,
                max_record_bytes=10,
                max_bytes_per_batch=2 * (25 + 64 * 1024),
            )
        )
        crashed = runs_into_crash(query, crash_at)
        if crashed and crash_again_at:
            runs_into_crash(query, crash_again_at)
        with steps_counted(query, None):
            query.run()
            put(spool, "new", b"z\n")
            query.run()
        assert sorted(query.records()) == sorted([*expected, ("new", 1, b"z")])
        assert [name for name in names(spool) if not name.endswith(".done")] == (
            ["big", "empty", "new", "other", "small"] if after == "keep" else []
        )
    assert crash_at > 20


def runs_into_crash(query: Query, crash_at: int) -> bool:
    with steps_counted(query, crash_at):
        try:
            query.run()
        except Crash:
            return True
    return False


def test_a_name_may_be_used_again_once_the_file_is_finished(spool_folder: Path, settings: Settings) -> None:
    query = Query(settings())
    for number in range(3):
        put(spool_folder, "a", b"%d\n" % number)
        query.run()
    assert query.values() == [b"0", b"1", b"2"]
    assert names(spool_folder) == ["a.2.done", "a.3.done", "a.done"]


def test_a_name_of_a_kept_file_may_be_used_again_by_another_file(
    spool_folder: Path, settings: Settings
) -> None:
    query = Query(settings(after="keep"))
    put(spool_folder, "a", b"old\n")
    query.run()
    put(spool_folder, "a.tmp", b"new\n").rename(spool_folder / "a")
    query.run()
    query.run()
    assert query.values() == [b"old", b"new"]


def test_a_kept_file_that_is_written_to_is_an_error_that_names_it(
    spool_folder: Path, settings: Settings
) -> None:
    query = Query(settings(after="keep"))
    path = put(spool_folder, "a", b"old\n")
    query.run()
    with path.open("ab") as opened:
        opened.write(b"more\n")
    with pytest.raises(PipelineError, match=f"{path} changed after it was taken: it was written to"):
        query.run()
    assert query.values() == [b"old"]


def test_a_file_that_grows_after_it_was_taken_is_an_error_and_nothing_of_it_is_lost(
    spool_folder: Path, settings: Settings
) -> None:
    path = put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    spool.log.close()
    with path.open("ab") as opened:
        opened.write(b"2\n")
    with pytest.raises(PipelineError, match=r"it had 2 bytes and has 4\. Put it back as it was"):
        query.run()
    put(spool_folder, "a", b"1\n", mtime=9)
    put(spool_folder, "b", b"2\n", mtime=10)
    query.run()
    assert query.values() == [b"1", b"2"]
    assert names(spool_folder) == ["a.done", "b.done"]


def test_a_file_whose_bytes_change_but_not_its_time_is_an_error(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    put(spool_folder, "a", b"2\n")
    with pytest.raises(PipelineError, match="its bytes from 0 to 2 are different"):
        query.run_batch(spool)
    spool.log.close()


def test_a_file_that_changes_after_its_records_were_committed_is_an_error(
    spool_folder: Path, settings: Settings
) -> None:
    path = put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    query.run_batch(spool)
    with path.open("ab") as opened:
        opened.write(b"2\n")
    with pytest.raises(PipelineError, match=f"{path} changed after it was taken"):
        query.plan_batch(spool)
    spool.log.close()
    path.unlink()
    query.run()
    assert query.values() == [b"1"]


def test_a_file_that_disappears_before_its_records_are_committed_is_an_error_until_it_is_back(
    spool_folder: Path, settings: Settings
) -> None:
    path = put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    spool.log.close()
    path.unlink()
    with pytest.raises(PipelineError, match=r"a \(2 bytes\) was taken, but disappeared"):
        query.run()
    put(spool_folder, "a", b"1\n", mtime=7)
    query.run()
    assert query.values() == [b"1"]
    assert names(spool_folder) == ["a.done"]


def test_a_folder_that_is_missing_when_files_are_finished_is_an_error(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    query.run_batch(spool)
    spool_folder.rename(spool_folder.with_name("away"))
    with pytest.raises(PipelineError, match="cannot be listed: No such file or directory"):
        query.plan_batch(spool)
    spool.log.close()
    spool_folder.with_name("away").rename(spool_folder)
    query.run()
    assert (query.values(), names(spool_folder)) == ([b"1"], ["a.done"])


def test_a_file_that_is_removed_and_put_back_is_not_read_twice(
    spool_folder: Path, settings: Settings
) -> None:
    path = put(spool_folder, "a", b"1\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    query.run_batch(spool)
    spool.log.close()
    path.rename(spool_folder.with_name("elsewhere"))
    query.run()
    spool_folder.with_name("elsewhere").rename(path)
    query.run()
    assert query.values() == [b"1"]


def test_a_record_that_is_too_long_stops_after_the_files_before_it_until_it_is_allowed(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"1\n")
    put(spool_folder, "b", b"22\nlong long\n", mtime=2)
    query = Query(settings(max_record_bytes=5))
    with pytest.raises(
        PipelineError, match=r"Record 2 of the file .*b, at byte 3, is longer than 5 bytes\. Raise"
    ):
        query.run(once=True)
    assert query.values() == [b"1"]
    query.settings = settings()
    query.run()
    assert query.values() == [b"1", b"22", b"long long"]


def test_an_unreadable_file_is_an_error_that_names_it(
    spool_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(spool_folder, "a", b"1\n")
    opens = open

    def reject(name: Any, *more: Any, **others: Any) -> Any:
        if name == str(path):
            raise PermissionError(13, "Permission denied")
        return opens(name, *more, **others)

    query = Query(settings())
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", reject)
        with pytest.raises(PipelineError, match=f"{path} cannot be read: Permission denied"):
            query.run()
    query.run()
    assert query.values() == [b"1"]


@pytest.mark.parametrize("change", ["grows", "disappears"])
def test_a_file_that_grows_or_disappears_before_it_is_in_the_log_is_skipped(
    change: str, spool_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(spool_folder, "a", b"1\n")
    put(spool_folder, "b", b"2\n", mtime=2)
    changes = [change]

    def next_changed_piece(file: TakenFile, *more: Any) -> Piece:
        if changes.pop() == "grows":
            put(spool_folder, "a", b"1\n1\n", mtime=3)
        else:
            path.unlink()
            raise FileNotFoundError
        return next_piece(file, *more)

    monkeypatch.setattr(
        spool_module,
        "next_piece",
        lambda *arguments: (next_changed_piece if changes else next_piece)(*arguments),
    )
    query = Query(settings())
    query.run()
    assert query.values() == ([b"2", b"1", b"1"] if change == "grows" else [b"2"])


def test_a_batch_has_as_many_bytes_as_allowed_but_at_least_one_entry(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"".join(b"%09d\n" % n for n in range(100)))
    query = Query(settings(split_bytes=100, max_record_bytes=9, max_bytes_per_batch=3 * (100 + 64 * 1024)))
    query.run()
    assert query.offsets == [3, 6, 9, 10]
    assert len(query.values()) == 100


def test_small_files_share_a_task(spool_folder: Path, settings: Settings) -> None:
    for number in range(50):
        put(spool_folder, f"{number:02}", b"%d\n" % number)
    query = Query(settings(split_bytes=20 * 65 * 1024))
    query.run()
    assert query.offsets == [3]
    assert query.values() == [b"%d" % number for number in range(50)]


def test_a_taken_file_is_read_in_its_format_even_if_the_settings_change(
    spool_folder: Path, settings: Settings
) -> None:
    put(spool_folder, "a", b"1\n2;3\n")
    query = Query(settings())
    spool = Spool(query.settings)
    spool.open()
    query.plan_batch(spool)
    spool.log.close()
    query.settings = settings(format="delimiter", delimiter=";")
    put(spool_folder, "b", b"4\n5;6\n", mtime=2)
    query.run()
    assert query.values() == [b"1", b"2;3", b"4\n5", b"6\n"]


def test_a_frozen_spool_leaves_files_that_come_later(spool_folder: Path, settings: Settings) -> None:
    put(spool_folder, "a", b"1\n")
    spool = Spool(settings())
    spool.open()
    spool.freeze()
    put(spool_folder, "b", b"2\n")
    end = spool.latest(0, 1e9)
    assert spool.latest(end, 1e9) == end
    spool.log.close()
    assert names(spool_folder) == ["a.done", "b"]


def test_a_file_is_left_until_it_is_settled(spool_folder: Path, settings: Settings) -> None:
    put(spool_folder, "a", b"1\n")
    spool = Spool(settings(settle_s=60.0))
    spool.open()
    assert spool.latest(0, 1e9) == 0
    spool.log.close()


def test_a_frozen_spool_waits_until_files_are_settled(spool_folder: Path, settings: Settings) -> None:
    put(spool_folder, "a", b"1\n")
    query = Query(settings(settle_s=0.2))
    query.run(once=True)
    assert query.values() == [b"1"]


def test_names_may_have_any_bytes(spool_folder: Path, settings: Settings) -> None:
    name = os.fsdecode(b"\xff\n'\xc3\xa4")
    put(spool_folder, name, b"1\n")
    query = Query(settings())
    query.run()
    assert query.records() == [(name, 1, b"1")]


def test_two_queries_cannot_use_one_log(
    spool_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LOCK_WAIT_S", 0.0)
    spool = Spool(settings())
    spool.open()
    with pytest.raises(PipelineError, match="Another query uses the log"):
        Spool(settings()).open()
    spool.log.close()


def test_a_checkpoint_without_its_log_is_an_error(spool_folder: Path, settings: Settings) -> None:
    spool = Spool(settings())
    spool.open()
    with pytest.raises(PipelineError, match=r"checkpoint is at entry 3, but the log .* ends at entry 0"):
        spool.latest(3, 1e9)
    with pytest.raises(PipelineError, match="ends at entry 0"):
        spool.entries(0, 3)
    spool.log.close()


def test_a_file_that_cannot_be_finished_is_an_error_and_is_finished_later(
    spool_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(spool_folder, "a", b"1\n")
    query = Query(settings())
    renames = os.rename

    def reject(source: str | Path, target: str | Path) -> None:
        if source == str(path):
            raise PermissionError(13, "Permission denied")
        renames(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", reject)
        with pytest.raises(
            PipelineError, match=r"are committed, but it cannot be renamed: Permission denied"
        ):
            query.run()
    query.run()
    assert (query.values(), names(spool_folder)) == ([b"1"], ["a.done"])
