"""Merges small files while the archive runs, so that their number stays bounded: in the pauses between batches."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.pipeline.archive.delta import DeltaLog, publish
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.merge import (
    HOUR_MS,
    delete_leftovers,
    merge_files,
    mergeable,
    split_into_rounds,
    wall_clock_ms,
)
from ottla.pipeline.archive.store import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# An hour into which late records come is not merged again for each of them.
FILES_MIN = 4
# A round takes some seconds.
_ROUND_BYTES = 256 << 20
# No other round begins after this time. The next batch waits so long at most, and for the round that runs.
_ROUNDS_S = 15.0


class AutomaticMerge:
    """It looks for small files once in an hour, because no other hour ends before."""

    def __init__(self, archive: Archive, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._archive = archive
        self._clock_ms = clock_ms
        self._cleaned_in_hour = self._looked_in_hour = -1
        self._rounds: list[list[DataFile]] = []

    def run(self, spark: "SparkSession", logs: Sequence[DeltaLog], histories: Sequence[str]) -> None:
        """Merges files of the histories, for a limited time. An error stops the merge, not the archive."""
        deadline_s = time.monotonic() + _ROUNDS_S
        try:
            self._look(spark, histories)
        except Exception as error:
            self._warn(error)
        while self._rounds and time.monotonic() < deadline_s:
            try:
                merge_files(spark, self._archive, self._rounds.pop(0), self._clock_ms)
                publish(self._archive, logs)
            except Exception as error:
                self._warn(error)

    def _warn(self, error: Exception) -> None:
        """The next attempt at the same files is in an hour."""
        _log.warning("Small files of the archive at %s were not merged: %s", self._archive.url, error)

    def _look(self, spark: "SparkSession", histories: Sequence[str]) -> None:
        now_ms = self._clock_ms()
        hour = now_ms // HOUR_MS
        # Also while rounds wait: what their merges supersede must not be forgotten before it is deleted.
        must_clean = hour != self._cleaned_in_hour
        must_plan = hour != self._looked_in_hour and not self._rounds
        if not must_clean and not must_plan:
            return
        self._cleaned_in_hour = hour
        if must_plan:
            self._looked_in_hour = hour
        archived = self._archive.load()
        if must_clean:
            delete_leftovers(spark, self._archive, archived, histories, now_ms)
        if must_plan:
            wanted = {
                at: files
                for at, files in mergeable(archived, now_ms, FILES_MIN).items()
                if at.topic in histories
            }
            self._rounds = split_into_rounds(wanted, _ROUND_BYTES)
