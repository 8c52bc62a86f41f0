"""Makes the archive of a topic a Delta table as well: writes a Delta log into the topic's folder of Parquet files.

It needs no jar. A version is a small file that, like a manifest, is created only if it does not exist. If several
processes publish at once, one of them writes a version and the others continue after it. If one is killed, the next
process to publish catches up.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ottla.pipeline.archive.delta_actions import (
    Action,
    apply_version,
    difference,
    first_version,
    manifest_number,
    next_version,
    reserved,
    table_state,
    to_lines,
)
from ottla.pipeline.archive.delta_checkpoint import paths_in, to_parquet
from ottla.pipeline.archive.layout import DELTA_LOG
from ottla.pipeline.archive.manifest import Archived, Manifest, combine
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files

_VERSION_NAME = re.compile(r"(\d{20})\.json")
_LOG_NAME = re.compile(r"(\d{20})\.(?:json|checkpoint\.parquet)")
# A reader reads one checkpoint and fewer than this many versions after it.
CHECKPOINT_EVERY = 100
# How many versions back a reader can go. A multiple of CHECKPOINT_EVERY, so that the oldest is a checkpoint.
VERSIONS_KEPT = 1000
_ATTEMPTS_MAX = 10


class Before(NamedTuple):
    """The sum of the manifests up to a number, which is condensed. It is loaded only if it is needed."""

    number: int
    load: Callable[[], Archived]


_NOTHING = Before(0, Archived)


class DeltaLog:
    """The log of one topic."""

    def __init__(self, files: Files, topic: str) -> None:
        self.topic = topic
        self.folder = f"{topic}/{DELTA_LOG}"
        self._files = files
        self._position: tuple[int, int] | None = None
        self._is_reserved = False

    @property
    def url(self) -> str:
        return self._files.url(self.folder)

    def exists(self) -> bool:
        return self._files.exists(self.folder)

    def position(self) -> tuple[int, int]:
        """The last version, -1 if there is none, and the number of the last manifest that it includes."""
        versions = self._versions()
        for version in reversed(versions):
            number = manifest_number(self._files.read(self._path(version)))
            if number is not None:
                return versions[-1], number
        if versions:
            raise PipelineError(
                f"The Delta log {self.url} was not created by Ottla.",
                "Remove it, or set another `path`: the archive writes a log of its own.",
            )
        return -1, 0

    def publish(self, manifests: Mapping[int, Manifest], before: Before = _NOTHING) -> None:
        """Adds a version for each manifest that the log does not include yet."""
        version, known = self._position or self.position()
        while version < 0:
            archived = combine(manifests, before.load())
            first = first_version(archived, self.topic, _now_ms())
            self._is_reserved = self._files.create(self._path(0), to_lines(first))
            version, known = self.position()
        if known < before.number:
            version, known = self._catch_up(version, known, before)
        # The process that wrote this version may have been killed before its checkpoint.
        self._checkpoint(version, known, manifests, before)
        for number in sorted(one for one in manifests if one > known):
            actions = next_version(number, manifests[number], self.topic, _now_ms())
            while actions and number > known:
                if self._create(version + 1, actions):
                    version, known = version + 1, number
                    self._checkpoint(version, known, manifests, before)
                else:
                    version, known = self.position()
        self._position = version, max(known, *manifests, before.number)

    def _catch_up(self, version: int, known: int, before: Before) -> tuple[int, int]:
        """Adds a version for what the table lacks of manifests that were condensed before it included them."""
        while known < before.number:
            actions = difference(self.listed_files(), before.load(), self.topic, _now_ms())
            if not actions:
                return version, before.number
            if self._create(version + 1, actions):
                return version + 1, before.number
            version, known = self.position()
        return version, known

    def listed_files(self) -> set[str]:
        """The files of the table according to the log, as paths below the topic's folder."""
        names = self._files.names(self.folder)
        checkpoints = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")]
        paths: set[str] = set()
        if checkpoints:
            paths = paths_in(self._files.read_bytes(_checkpoint_path(self.folder, max(checkpoints))))
        for version in self._versions():
            if version > max(checkpoints, default=-1):
                paths = apply_version(paths, self._files.read(self._path(version)))
        return paths

    def _create(self, version: int, actions: Iterable[Action]) -> bool:
        """The first version of each process reserves the table again: who created it is not known."""
        text = to_lines(actions if self._is_reserved else reserved(actions))
        is_ours = self._files.create(self._path(version), text)
        self._is_reserved |= is_ours
        return is_ours

    def _checkpoint(
        self, version: int, known: int, manifests: Mapping[int, Manifest], before: Before
    ) -> None:
        """Writes that of a version which includes the manifests up to number `known`, if it is due and not there."""
        path = _checkpoint_path(self.folder, version)
        if version == 0 or version % CHECKPOINT_EVERY or self._files.exists(path):
            return
        included = {number: manifest for number, manifest in manifests.items() if number <= known}
        state = table_state(combine(included, before.load()), self.topic, _now_ms())
        self._files.create(path, to_parquet(state))
        for name in self._files.names(self.folder):
            found = _LOG_NAME.fullmatch(name)
            if found and int(found[1]) < version - VERSIONS_KEPT:
                self._files.delete(f"{self.folder}/{name}")

    def _versions(self) -> list[int]:
        found = [_VERSION_NAME.fullmatch(name) for name in self._files.names(self.folder)]
        return sorted(int(one[1]) for one in found if one)

    def _path(self, version: int) -> str:
        return f"{self.folder}/{version:020}.json"


def delta_logs(archive: Archive, topics: Iterable[str], *, wanted: bool) -> list[DeltaLog]:
    """The logs to update: those of all topics if `wanted`, otherwise those that exist, which must not become stale."""
    logs = [DeltaLog(archive.files, topic) for topic in topics]
    return [log for log in logs if wanted or log.exists()]


def publish(archive: Archive, logs: Iterable[DeltaLog]) -> None:
    for log in logs:
        _publish(archive, log)


def _publish(archive: Archive, log: DeltaLog) -> None:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        recent = archive.recent()
        try:
            log.publish(
                recent.manifests, Before(recent.condensed.summary.number, partial(archive.before, recent))
            )
            return
        except FileNotFoundError:
            # More manifests were condensed meanwhile.
            if attempt == _ATTEMPTS_MAX:
                raise


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _checkpoint_path(folder: str, version: int) -> str:
    return f"{folder}/{version:020}.checkpoint.parquet"
