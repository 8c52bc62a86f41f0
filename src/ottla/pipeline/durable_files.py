"""Writes files that exist completely or not at all, also after a power failure. All of the pipeline writes this way.

The content is flushed before the file gets its name, and the folder after that: a name that is not flushed may vanish.
"""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def flush_folder(folder: Path | str) -> None:
    """Makes names that were added to or removed from `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With its parents. Each is durable before anything is created in it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        # Another thread may have created it. It need not have flushed it yet.
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    flush_folder(folder.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. It replaces `path` at the end of the block."""
    with _draft_of(path) as draft:
        with _flushed(draft) as file:
            yield file
        draft.replace(path)
    flush_folder(path.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Whatever happens, `path` has its old content or `data`."""
    with replacing(path) as file:
        file.write(data)


def create(path: Path, data: bytes) -> bool:
    """False, without a change, if there is a file at `path`."""
    with _draft_of(path) as draft:
        with _flushed(draft) as file:
            file.write(data)
        try:
            # A link, unlike a rename, does not replace an existing file.
            os.link(draft, path)
        except FileExistsError:
            return False
    flush_folder(path.parent)
    return True


def move(source: Path, target: Path) -> None:
    """Moves a file within a file system. Another program wrote it and may not have flushed it."""
    make_folder(target.parent)
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)
    flush_folder(target.parent)
    if source.parent != target.parent:
        flush_folder(source.parent)


@contextmanager
def _flushed(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`. A file of that name is deleted at the end, whatever happened."""
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)
