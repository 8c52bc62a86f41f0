"""Files that are there whole or not at all, also after a loss of power: the one way to write one in the pipeline.

The content is synced before the file gets its name, and the folder after it: a name that is not synced may vanish.
"""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def sync_folder(folder: Path | str) -> None:
    """Makes names that were added to or removed from `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With its parents, each of which is durable before something lies in it."""
    if folder.is_dir():
        return
    if folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` at the end of the block."""
    with _draft_of(path) as draft:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    sync_folder(path.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Whatever happens, `path` holds what it held, or `data`."""
    with replacing(path) as file:
        file.write(data)


def create(path: Path, data: bytes) -> bool:
    """False, and nothing is changed, if there is a file at `path`."""
    with _draft_of(path) as draft:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link, unlike a rename, does not take the place of a file that is there.
            os.link(draft, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def move(source: Path, target: Path) -> None:
    """Moves a file that another program wrote, and may not have synced, within a file system."""
    make_folder(target.parent)
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """A name beside `path` that is gone at the end, whatever happened."""
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)
