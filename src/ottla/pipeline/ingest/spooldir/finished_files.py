"""Finishes files whose records are committed: renames, moves, deletes or keeps them.

First it checks that the files are still as they were taken. Then the log says that they are being finished. Then they
are. After a crash in between, the remaining ones are finished, and a new file under an old name is left alone.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ottla.pipeline.durable_files import flush_folder, make_folder
from ottla.pipeline.ingest.spooldir.errors import cannot_finish, file_changed, folder_unreadable
from ottla.pipeline.ingest.spooldir.files import TakenFile, identity_of, stat_file
from ottla.pipeline.ingest.spooldir.log import TakenLog
from ottla.pipeline.ingest.spooldir.pieces import describe_change
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings

_ACTIONS = {"rename": "renamed", "move": "moved to {done_folder}", "delete": "deleted"}


def finish_files(log: TakenLog, end: int, settings: SpoolDirSettings) -> None:
    """Finishes the files that end below the entry `end`: everything below it is committed."""
    if end <= log.finished:
        return
    _check_folder(settings)
    present, missing = [], []
    for file in log.last_pieces(log.finished, end):
        status = stat_file(file.path)
        if status is None:
            missing.append(file)
            continue
        change = describe_change(file, status, log.pieces_of)
        if change:
            raise file_changed(file.path, change)
        present.append(file)
    log.begin_finishing(end)
    _finish_all(present, settings)
    # A missing file may come back, for example when a folder is mounted again: it is remembered like a kept one.
    kept = missing + (present if settings.after == "keep" else [])
    log.end_finishing(end, [file.number for file in kept])


def resume_finishing(log: TakenLog, settings: SpoolDirSettings) -> None:
    """Completes what a crash interrupted."""
    if log.finishing == log.finished:
        return
    _check_folder(settings)
    files = list(log.last_pieces(log.finished, log.finishing))
    _finish_all([file for file in files if is_unchanged(file)], settings)
    log.end_finishing(log.finishing, [file.number for file in files if settings.after == "keep"])


def is_unchanged(file: TakenFile) -> bool:
    """Whether the file exists and has the same identity."""
    status = stat_file(file.path)
    return status is not None and identity_of(status) == file.identity


def _check_folder(settings: SpoolDirSettings) -> None:
    """If the folder is not mounted, all files look as if somebody had removed them."""
    if not os.path.isdir(settings.folder):
        raise folder_unreadable(settings.folder, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


def _finish_all(files: Iterable[TakenFile], settings: SpoolDirSettings) -> None:
    if settings.after == "keep":
        return
    folders = set()
    for file in files:
        try:
            folders.update(_finish(file, settings))
        except OSError as error:
            action = _ACTIONS[settings.after].format(done_folder=settings.done_folder)
            raise cannot_finish(file.path, action, error) from None
    # The log forgets these files next, so they must not come back after a power failure.
    for folder in folders:
        flush_folder(folder)


def _finish(file: TakenFile, settings: SpoolDirSettings) -> set[str]:
    """Returns the folders that changed."""
    folder = os.path.dirname(file.path)
    if settings.after == "delete":
        os.unlink(file.path)
        return {folder}
    if settings.after == "move":
        target = _free_name(os.path.join(settings.done_folder, file.name), "")
        make_folder(Path(target).parent)
    else:
        target = _free_name(file.path, settings.done_suffix)
    os.rename(file.path, target)
    return {folder, os.path.dirname(target)}


def _free_name(path: str, suffix: str) -> str:
    """The path with the suffix; if a file of that name exists, with a number before the suffix."""
    target, number = path + suffix, 1
    while os.path.lexists(target):
        number += 1
        target = f"{path}.{number}{suffix}"
    return target
