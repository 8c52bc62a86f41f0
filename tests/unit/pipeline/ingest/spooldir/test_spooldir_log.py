"""The log of taken files survives a crash at any byte, and does not grow for ever."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir import log as log_module
from ottla.pipeline.ingest.spooldir.files import Identity, Piece, TakenFile
from ottla.pipeline.ingest.spooldir.log import TakenLog
from ottla.pipeline.ingest.spooldir.pieces import FilePosition
from ottla.pipeline.ingest.spooldir.record_format import RecordFormat

BROKEN = b'{"entry":0,"files":[],"pieces":[[7,0,1,1,1,0]]}\n'


def opened(folder: Path) -> TakenLog:
    log = TakenLog(folder)
    log.open()
    return log


def reopened(log: TakenLog) -> TakenLog:
    log.close()
    return opened(log.folder)


def take_whole(log: TakenLog, name: str, size: int = 10) -> TakenFile:
    file = log.new_file(f"/spool/{name}", name, Identity(size, 1, 2), RecordFormat(b"\n"))
    log.take([([file], [Piece(file.number, 0, size, 1, 1, 0)])])
    return file


def state(log: TakenLog) -> tuple[object, ...]:
    return log.entries, log.files, log.known, log.kept, log.partly_taken, log.end, log.finishing, log.finished


def test_the_log_has_the_same_state_after_a_restart(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    first = take_whole(log, "a")
    big = log.new_file("/spool/\udcff", "\udcff", Identity(30, 1, 2), RecordFormat(b"\xff", True, True))
    log.take([([big], [Piece(big.number, 0, 10, 1, 4, 5)]), ([], [Piece(big.number, 10, 20, 5, 3, 6)])])
    log.begin_finishing(1)
    log.end_finishing(1, [first.number])
    log.begin_finishing(2)
    before = state(log)
    log = reopened(log)
    assert state(log) == before
    assert log.partly_taken == (big, FilePosition(20, 8))
    assert (log.end, log.finishing, log.finished, log.kept) == (3, 2, 1, {first.number})
    log.close()


def test_an_incomplete_last_line_is_dropped(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    take_whole(log, "a")
    kept = log.path.read_bytes()
    take_whole(log, "b")
    whole = log.path.read_bytes()
    log.close()
    for size in range(len(kept), len(whole)):
        log.path.write_bytes(whole[:size])
        again = opened(log.folder)
        assert (again.end, again.path.read_bytes()) == (1, kept)
        take_whole(again, "c")
        again = reopened(again)
        assert [file.name for file in again.files.values()] == ["a", "c"]
        again.close()


@examples()
@given(steps=st.lists(st.sampled_from(["take", "part", "finish", "keep", "begin"]), max_size=25))
def test_a_rewritten_log_has_the_same_state(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        log = opened(tmp_path_factory.mktemp("log"))
        do(log, steps)
        before = state(log)
        log._rewrite()
        log = reopened(log)
    assert state(log) == before
    log.close()


def do(log: TakenLog, steps: list[str]) -> None:
    for number, step in enumerate(steps):
        if step == "take" and log.partly_taken is None:
            take_whole(log, f"name-{number % 3}-{log.end}")
        elif step == "part" and log.partly_taken is None:
            file = log.new_file(f"/spool/{number}", str(number), Identity(30, 1, 2), RecordFormat(b"\n"))
            log.take([([file], [Piece(file.number, 0, 10, 1, 1, 0)])])
        elif step == "part" and log.partly_taken is not None:
            file, position = log.partly_taken
            log.take([([], [Piece(file.number, position.byte, position.byte + 10, position.line, 1, 0)])])
        elif step == "begin":
            log.begin_finishing(log.end)
        elif log.end > log.finished:
            done = [file.number for file in log.last_pieces(log.finished, log.finished + 1)]
            log.end_finishing(log.finished + 1, done if step == "keep" else [])


def test_the_log_does_not_grow_with_finished_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(log_module, "REWRITE_BYTES", 2_000)
    log = opened(tmp_path / "log")
    for number in range(200):
        take_whole(log, f"file-{number}")
        log.begin_finishing(log.end)
        log.end_finishing(log.end, [])
    assert log.path.stat().st_size < 4_000
    log = reopened(log)
    assert log.end == 200
    log.close()


def test_a_full_disk_is_an_error_and_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path / "log")
    before = log.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(PipelineError, match=r"cannot be written: No space left on device\. Fix that"):
            take_whole(log, "a")
    assert (log.path.read_bytes(), log.end) == (before, 0)
    take_whole(log, "a")
    log = reopened(log)
    assert log.end == 1
    log.close()


@pytest.mark.parametrize("line", [b"{}\n", b"not json\n", b"[]\n", BROKEN])
def test_a_damaged_log_is_an_error_that_names_the_line(tmp_path: Path, line: bytes) -> None:
    log = opened(tmp_path / "log")
    log.close()
    with log.path.open("ab") as file:
        file.write(line)
    with pytest.raises(PipelineError, match="is damaged at line 2"):
        opened(log.folder)


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a file")
    with pytest.raises(PipelineError, match=r"The log of taken files in .* cannot be written"):
        opened(tmp_path / "log")
