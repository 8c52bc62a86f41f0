"""The archive of a topic as a Delta table as well: a Delta log in the topic's folder, beside the same Parquet files.

It needs no jar: a version is a small file that is written only where there is none, as a manifest is. Of several that
publish at once, one writes a version and the others go on behind it; killed at any moment, the next one catches up.
"""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.pipeline.archive.delta_actions import (
    apply_version,
    first_version,
    manifest_number,
    next_version,
    table_state,
    to_lines,
)
from ottla.pipeline.archive.delta_checkpoint import to_parquet
from ottla.pipeline.archive.layout import DELTA_LOG
from ottla.pipeline.archive.manifest import Manifest, combine
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files

VERSION_NAME = re.compile(r"(\d{20})\.json")
LOG_NAME = re.compile(r"(\d{20})\.(?:json|checkpoint\.parquet)")
# So that a reader reads one checkpoint and fewer than as many versions.
CHECKPOINT_EVERY = 100
# As many versions one can go back in time; a multiple of the former, so that the oldest of them is a checkpoint.
VERSIONS_KEPT = 1000


class DeltaLog:
    """The log of one topic."""

    def __init__(self, files: Files, topic: str) -> None:
        self.topic = topic
        self.folder = f"{topic}/{DELTA_LOG}"
        self._files = files
        self._position: tuple[int, int] | None = None

    @property
    def url(self) -> str:
        return self._files.url(self.folder)

    def exists(self) -> bool:
        return self._files.exists(self.folder)

    def position(self) -> tuple[int, int]:
        """The last version, -1 where there is none, and the number of the last manifest that it knows of."""
        versions = self._versions()
        for version in reversed(versions):
            number = manifest_number(self._files.read(self._path(version)))
            if number is not None:
                return versions[-1], number
        if versions:
            raise PipelineError(
                f"The Delta log {self.url} was not begun by Ottla.",
                "Remove it, or let the archive lie elsewhere: the archive writes a log of its own.",
            )
        return -1, 0

    def publish(self, manifests: Mapping[int, Manifest]) -> None:
        """Says whatever of the manifests it does not say yet."""
        now_ms = time.time_ns() // 1_000_000
        version, known = self._position or self.position()
        while version < 0:
            archived = combine(manifests)
            self._files.create(self._path(0), to_lines(first_version(archived, self.topic, now_ms)))
            version, known = self.position()
        for number, manifest in sorted(manifests.items()):
            actions = next_version(number, manifest, self.topic, now_ms)
            while actions and number > known:
                if self._files.create(self._path(version + 1), to_lines(actions)):
                    version, known = version + 1, number
                    self._checkpoint(version, {one: manifests[one] for one in manifests if one <= number})
                else:
                    version, known = self.position()
        self._position = version, known

    def listed(self, spark: Any) -> set[str]:
        """The paths of the table's files, as the log says; below the topic's folder."""
        names = self._files.names(self.folder)
        checkpoints = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet")]
        paths: set[str] = set()
        if checkpoints:
            rows = spark.read.parquet(self._files.url(checkpoint_path(self.folder, max(checkpoints))))
            paths = {row.path for row in rows.where("add is not null").select("add.path").collect()}
        for version in self._versions():
            if version > max(checkpoints, default=-1):
                paths = apply_version(paths, self._files.read(self._path(version)))
        return paths

    def _checkpoint(self, version: int, manifests: Mapping[int, Manifest]) -> None:
        if version % CHECKPOINT_EVERY:
            return
        state = table_state(combine(manifests), self.topic, time.time_ns() // 1_000_000)
        self._files.create(checkpoint_path(self.folder, version), to_parquet(state))
        for name in self._files.names(self.folder):
            found = LOG_NAME.fullmatch(name)
            if found and int(found[1]) < version - VERSIONS_KEPT:
                self._files.delete(f"{self.folder}/{name}")

    def _versions(self) -> list[int]:
        found = [VERSION_NAME.fullmatch(name) for name in self._files.names(self.folder)]
        return sorted(int(one[1]) for one in found if one)

    def _path(self, version: int) -> str:
        return f"{self.folder}/{version:020}.json"


def delta_logs(archive: Archive, topics: Iterable[str], *, wanted: bool) -> list[DeltaLog]:
    """Those to be kept: of all topics where that is wanted, else those that are there, lest they grow stale."""
    logs = [DeltaLog(archive.files, topic) for topic in topics]
    return [log for log in logs if wanted or log.exists()]


def publish(archive: Archive, logs: Iterable[DeltaLog]) -> None:
    manifests = archive.manifests()
    for log in logs:
        log.publish(manifests)


def checkpoint_path(folder: str, version: int) -> str:
    return f"{folder}/{version:020}.checkpoint.parquet"
