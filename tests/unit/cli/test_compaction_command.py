"""`ottla topics compaction` on the files of a log."""

import json
from pathlib import Path

import pytest
from tests.unit.storage.cleaner_bench import COMPACTED, clean
from tests.unit.storage.log_builder import NOW_MS
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.env.real_disk import RealDisk
from ottla.model.ids import TopicPartition
from ottla.records.header import read_header
from ottla.records.records import Record, build_batch
from ottla.storage.checkpoints import write_offset_checkpoint
from ottla.storage.log import Log
from ottla.storage.log_dir import CLEANER_OFFSETS

USERS = TopicPartition("users", 0)


def put(log: Log, key: bytes, value: bytes) -> None:
    data = build_batch([Record(log.log_end_offset, NOW_MS, key, value)], leader_epoch=0)
    log.append([(read_header(data), [data])], NOW_MS)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Four records of two keys, of which two are clean, and one more in the active segment."""
    log = Log.open(
        RealDisk(), str(tmp_path / "users-0"), USERS, COMPACTED, clean_shutdown=False, now_ms=NOW_MS
    )
    for key in (b"a", b"b"):
        put(log, key, b"1")
    log.roll(NOW_MS)
    assert clean(log, RealDisk(), NOW_MS) is not None
    for key in (b"a", b"b"):
        put(log, key, b"2")
    log.roll(NOW_MS)
    put(log, b"c", b"3")
    write_offset_checkpoint(RealDisk(), str(tmp_path / CLEANER_OFFSETS), {USERS: log.clean_up_to or 0})
    log.close(clean=True)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["topics", "compaction", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_json_has_clean_and_dirty_bytes_and_what_would_be_freed(data_dir: Path) -> None:
    report = json.loads(run("users", "--log-dirs", str(data_dir), "--json"))
    assert report["clean_bytes"] == report["dirty_bytes"] == report["frees_bytes"] > 0
    assert (report["partition"], report["keys"], report["dirty_ratio"]) == (0, 2, 0.5)
    assert report["last_run_ms"] is not None


def test_the_table_shows_the_same(data_dir: Path) -> None:
    before = {path: path.read_bytes() for path in (data_dir / "users-0").iterdir()}
    shown = run("users", "--log-dirs", str(data_dir))
    assert "WOULD FREE" in shown
    assert "50%" in shown
    assert {path: path.read_bytes() for path in (data_dir / "users-0").iterdir()} == before


def test_a_topic_that_does_not_exist_is_an_error(data_dir: Path) -> None:
    result = CliRunner().invoke(app, ["topics", "compaction", "others", "--log-dirs", str(data_dir)])
    assert result.exit_code != 0
    assert "--log-dirs" in str(result.exception)


def test_records_that_do_not_fit_into_the_offset_map_are_reported_as_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.storage.cleaner.report._DEDUPE_BYTES", 1)
    log = Log.open(
        RealDisk(), str(tmp_path / "users-0"), USERS, COMPACTED, clean_shutdown=False, now_ms=NOW_MS
    )
    for key in (b"a", b"a", b"b", b"c", b"d", b"e"):
        put(log, key, b"1")
    log.roll(NOW_MS)
    log.close(clean=True)
    report = json.loads(run("users", "--log-dirs", str(tmp_path), "--json"))
    assert report["keys"] == 5
    assert 0 < report["frees_bytes"] < report["dirty_bytes"] / 5
