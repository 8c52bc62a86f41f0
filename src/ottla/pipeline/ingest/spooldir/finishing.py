"""Putting files away when their records are committed: renamed, moved, deleted, or kept.

First it is looked whether they are as they were taken, then the log says that they are being put away, then they are.
After a crash in between, those that still stand there are put away, and a new file under an old name is not touched.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ottla.pipeline.durable_files import flush_folder, make_folder
from ottla.pipeline.ingest.spooldir.files import TakenFile, identity_of, stat_file
from ottla.pipeline.ingest.spooldir.log import TakenLog
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.taking import change_of
from ottla.pipeline.ingest.spooldir.troubles import cannot_put_away, changed, folder_unreadable

DEEDS = {"rename": "renamed", "move": "moved to {done_folder}", "delete": "deleted"}


def finish(log: TakenLog, end: int, settings: SpoolDirSettings) -> None:
    """Puts away the files that end below the entry `end`: all below it is committed."""
    if end <= log.finished:
        return
    check_folder(settings)
    present, missing = [], []
    for file in log.last_pieces(log.finished, end):
        found = stat_file(file.path)
        if found is None:
            missing.append(file)
            continue
        change = change_of(file, found, log.pieces_of)
        if change:
            raise changed(file.path, change)
        present.append(file)
    log.begin_finishing(end)
    put_away_all(present, settings)
    # A file that somebody took away may come again, when a folder is mounted again: it is remembered like a kept one.
    kept = missing + (present if settings.after == "keep" else [])
    log.end_finishing(end, [file.number for file in kept])


def resume(log: TakenLog, settings: SpoolDirSettings) -> None:
    """Ends what a crash interrupted."""
    if log.finishing == log.finished:
        return
    check_folder(settings)
    files = list(log.last_pieces(log.finished, log.finishing))
    put_away_all([file for file in files if is_there(file)], settings)
    log.end_finishing(log.finishing, [file.number for file in files if settings.after == "keep"])


def check_folder(settings: SpoolDirSettings) -> None:
    """A folder that is not mounted looks as if somebody had taken the files away."""
    if not os.path.isdir(settings.folder):
        raise folder_unreadable(settings.folder, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


def is_there(file: TakenFile) -> bool:
    found = stat_file(file.path)
    return found is not None and identity_of(found) == file.identity


def put_away_all(files: Iterable[TakenFile], settings: SpoolDirSettings) -> None:
    if settings.after == "keep":
        return
    folders = set()
    for file in files:
        try:
            folders.update(put_away(file, settings))
        except OSError as error:
            deed = DEEDS[settings.after].format(done_folder=settings.done_folder)
            raise cannot_put_away(file.path, deed, error) from None
    # The log forgets these files next, so they must not come back when the machine loses its power.
    for folder in folders:
        flush_folder(folder)


def put_away(file: TakenFile, settings: SpoolDirSettings) -> set[str]:
    """Returns the folders that it changed."""
    folder = os.path.dirname(file.path)
    if settings.after == "delete":
        os.unlink(file.path)
        return {folder}
    if settings.after == "move":
        target = free_name(os.path.join(settings.done_folder, file.name), "")
        make_folder(Path(target).parent)
    else:
        target = free_name(file.path, settings.done_suffix)
    os.rename(file.path, target)
    return {folder, os.path.dirname(target)}


def free_name(path: str, suffix: str) -> str:
    """The path with its suffix, and a number before it where the name was used, and a file put away, before."""
    target, number = path + suffix, 1
    while os.path.lexists(target):
        number += 1
        target = f"{path}.{number}{suffix}"
    return target
