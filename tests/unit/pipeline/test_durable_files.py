"""A file of the pipeline is written completely or not at all, also in a power failure."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.pipeline import durable_files
from ottla.pipeline.files import LocalFiles
from ottla.pipeline.ingest.cdc.state_files import write_state_file


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What reached the disk, in order: ("sync", path), and ("name", path) for each name that was given."""
    noted: list[tuple[str, str]] = []
    fsync, replace, link = os.fsync, Path.replace, os.link

    def note_sync(descriptor: int) -> None:
        noted.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        noted.append(("name", str(target)))
        return replace(self, target)

    def note_link(source: Path, target: Path) -> None:
        noted.append(("name", str(target)))
        link(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    monkeypatch.setattr(os, "link", note_link)
    return noted


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_atomically": lambda path: durable_files.write_atomically(path, b"data"),
    "create": lambda path: durable_files.create(path, b"data"),
    "archive": lambda path: LocalFiles(str(path.parent)).create(path.name, b"data"),
    "capture": lambda path: write_state_file(path, "data"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_content_is_flushed_before_the_file_gets_its_name_and_the_folder_after(
    writer: str, tmp_path: Path, steps: list[tuple[str, str]]
) -> None:
    path = tmp_path / "new" / "file"
    WRITERS[writer](path)
    named = steps.index(("name", str(path)))
    assert any(step == "sync" and Path(of).name.startswith(".file.") for step, of in steps[:named])
    assert ("sync", str(tmp_path)) in steps[:named]  # the new folder has its own name on disk
    assert steps[named + 1 :] == [("sync", str(path.parent))]
    assert path.read_bytes() == b"data"
    assert os.listdir(path.parent) == ["file"]


def test_a_folder_that_another_thread_creates_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread creates it just after this one has looked."""
    folder = tmp_path / "folder"
    is_dir = Path.is_dir

    def create_afterwards(self: Path) -> bool:
        found = is_dir(self)
        if self == folder:
            os.makedirs(folder, exist_ok=True)
        return found

    monkeypatch.setattr(Path, "is_dir", create_afterwards)
    durable_files.create(folder / "file", b"data")
    assert (folder / "file").read_bytes() == b"data"


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="folder"):
        durable_files.make_folder(tmp_path / "folder")


def test_create_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert durable_files.create(path, b"first")
    assert not durable_files.create(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_write_keeps_the_old_content_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable_files.write_atomically(path, b"before")

    def write_half() -> None:
        with durable_files.replacing(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_moved_file_is_flushed_before_it_gets_its_name(
    tmp_path: Path, steps: list[tuple[str, str]]
) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    source.write_bytes(b"data")
    durable_files.move(source, target)
    named = steps.index(("name", str(target)))
    assert ("sync", str(source)) in steps[:named]
    assert steps[named + 1 :] == [("sync", str(target.parent)), ("sync", str(tmp_path))]
