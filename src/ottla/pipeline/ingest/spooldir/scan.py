"""Which files of the folder may be taken, and in which order."""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from ottla.pipeline.ingest.spooldir.files import Found, identity_of
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.troubles import folder_unreadable


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_wanted(name: str, settings: SpoolDirSettings) -> bool:
    if settings.done_suffix and name.endswith(settings.done_suffix):
        return False
    return matches(name, settings.include) and not matches(name, settings.ignore)


def is_settled(ctime: float, now: float, settle_s: float) -> bool:
    return now - ctime >= settle_s


def in_order(found: Iterable[Found]) -> list[Found]:
    """The oldest first, by name where the times are equal."""
    return sorted(found, key=lambda file: (file.identity.mtime_ns, file.name))


def find(settings: SpoolDirSettings) -> Iterator[Found]:
    """The files that are wanted, settled or not. `settings.folder` and `done_folder` are absolute."""
    folders = [""]
    while folders:
        below = folders.pop()
        path = os.path.join(settings.folder, below) if below else settings.folder
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = os.path.join(below, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if settings.recursive and is_inner(entry, settings):
                            folders.append(name)
                    elif entry.is_file() and is_wanted(entry.name, settings):
                        yield from look(entry, name)
        except FileNotFoundError as error:
            if not below:
                raise folder_unreadable(path, error) from None
        except OSError as error:
            raise folder_unreadable(path, error) from None


def is_inner(entry: "os.DirEntry[str]", settings: SpoolDirSettings) -> bool:
    return entry.path != settings.done_folder and not matches(entry.name, settings.ignore)


def look(entry: "os.DirEntry[str]", name: str) -> Iterator[Found]:
    try:
        found = entry.stat()
    except FileNotFoundError:
        return  # it went away since the folder was listed
    yield Found(entry.path, name, identity_of(found), found.st_ctime)
