"""Scans the folder: which files are wanted, which are settled, and in which order they are taken."""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from ottla.pipeline.ingest.spooldir.errors import folder_unreadable
from ottla.pipeline.ingest.spooldir.files import FoundFile, identity_of
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings


def find_files(settings: SpoolDirSettings) -> Iterator[FoundFile]:
    """The wanted files, settled or not. `settings.folder` and `done_folder` are absolute."""
    folders = [""]
    while folders:
        below = folders.pop()
        path = os.path.join(settings.folder, below) if below else settings.folder
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = os.path.join(below, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if settings.recursive and _is_wanted_folder(entry, settings):
                            folders.append(name)
                    elif entry.is_file() and is_wanted(entry.name, settings):
                        yield from _stat_entry(entry, name)
        except FileNotFoundError as error:
            if not below:
                raise folder_unreadable(path, error) from None
        except OSError as error:
            raise folder_unreadable(path, error) from None


def is_wanted(name: str, settings: SpoolDirSettings) -> bool:
    if settings.done_suffix and name.endswith(settings.done_suffix):
        return False
    return _matches(name, settings.include) and not _matches(name, settings.ignore)


def is_settled(ctime: float, now: float, settle_s: float) -> bool:
    return now - ctime >= settle_s


def sort_files(found: Iterable[FoundFile]) -> list[FoundFile]:
    """The oldest first, by name if the times are equal."""
    return sorted(found, key=lambda file: (file.identity.mtime_ns, file.name))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_wanted_folder(entry: "os.DirEntry[str]", settings: SpoolDirSettings) -> bool:
    return entry.path != settings.done_folder and not _matches(entry.name, settings.ignore)


def _stat_entry(entry: "os.DirEntry[str]", name: str) -> Iterator[FoundFile]:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return  # it disappeared after the folder was listed
    yield FoundFile(entry.path, name, identity_of(status), status.st_ctime)
