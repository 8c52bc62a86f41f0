"""A stand-in for Spark and an exactly-once sink around a `Spool`: durable data survives a crash at any step."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.ingest.spooldir import log
from ottla.pipeline.ingest.spooldir.pieces import read_piece
from ottla.pipeline.ingest.spooldir.record_format import split_records
from ottla.pipeline.ingest.spooldir.settings import SpoolDirSettings
from ottla.pipeline.ingest.spooldir.spool import Spool


class Crash(BaseException):
    """Nothing catches it, as nothing survives a kill."""


class Steps:
    """Counts the steps that make something durable, and crashes at one: before it, or in the middle of an append."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.crash_at:
            raise Crash

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.step()
            return action(*arguments, **more)

        return counted

    def append(self, path: Path, data: bytes) -> None:
        try:
            self.step()
        except Crash:
            with path.open("ab") as opened:
                opened.write(data[: len(data) // 2])
            raise
        with path.open("ab") as opened:
            opened.write(data)


class Query:
    """Spark's offset log and commit log, and what the sink holds by batch and partition."""

    def __init__(self, settings: SpoolDirSettings) -> None:
        self.settings = settings
        self.steps = Steps()
        self.offsets: list[int] = []
        self.commits = 0
        self.sink: dict[tuple[int, int], list[tuple[str, int, bytes]]] = {}

    def records(self) -> list[tuple[str, int, bytes]]:
        """(file, number, bytes) of everything in the sink."""
        return [record for key in sorted(self.sink) for record in self.sink[key]]

    def values(self) -> list[bytes]:
        return [value for _, _, value in self.records()]

    def run(self, *, once: bool = False) -> None:
        """Until there is nothing more, as with AvailableNow."""
        spool = Spool(self.settings)
        try:
            spool.open()
            if once:
                spool.freeze()
            if len(self.offsets) > self.commits:
                self.run_batch(spool)
            while self.plan_batch(spool):
                self.run_batch(spool)
        finally:
            spool.log.close()

    def plan_batch(self, spool: Spool) -> bool:
        start = self.offsets[-1] if self.offsets else 0
        end = spool.latest(start, self.settings.max_bytes_per_batch)
        if end > start:
            self.steps.step()
            self.offsets.append(end)
        return end > start

    def run_batch(self, spool: Spool) -> None:
        batch = len(self.offsets) - 1
        start = self.offsets[batch - 1] if batch else 0
        for partition, pieces in enumerate(spool.entries(start, self.offsets[batch])):
            rows = []
            for file, piece in pieces:
                records = split_records(read_piece(file, piece), file.record_format)
                rows += [(file.name, number, record) for number, record in enumerate(records, piece.line)]
            self.steps.step()
            assert self.sink.setdefault((batch, partition), rows) == rows, (
                "a batch that runs again reads the same"
            )
        self.steps.step()
        self.commits += 1


@contextlib.contextmanager
def steps_counted(query: Query, crash_at: int | None) -> Iterator[Steps]:
    """Counts the durable steps of the spool too. Syncs are left out: here they only cost time."""
    steps = query.steps = Steps(crash_at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "append_durably", steps.append)
        patch.setattr(log, "write_atomically", steps.around(Path.write_bytes))
        patch.setattr(os, "rename", steps.around(os.rename))
        patch.setattr(os, "unlink", steps.around(os.unlink))
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield steps
