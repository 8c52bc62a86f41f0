"""`format("ottla-replay")`: the topics of a replay as if nothing of them had been deleted, as one stream.

First it reads the earlier histories of topics that were deleted or created again, from their archives. Then it reads
the topics, and from the archive what they have deleted. The offsets of a batch alone decide which records it has and in
which Spark partition each is. So a batch that runs again has the same rows, even if retention deleted some in between.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.layout import topic_of
from ottla.pipeline.archive.ranges import spans_by_partition
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.ingest.reload.plan import Task
from ottla.pipeline.replay.archives import Archives
from ottla.pipeline.replay.plan import Plan, next_earlier, split_range
from ottla.pipeline.spark.offsets import (
    EXTRA_PREFIX,
    OffsetRange,
    Offsets,
    Position,
    from_json,
    ranges_between,
    to_json,
)
from ottla.pipeline.spark.options import read_options
from ottla.pipeline.spark.rows import COLUMNS_WITH_HEADERS
from ottla.pipeline.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa

_NEW_REPLAY = "start a new replay, with another topic for --to, which finds out again what the archive has."
# Up to where the earlier histories are read, beside the offsets of the topics.
_EARLIER = f"{EXTRA_PREFIX}earlier"


class ReplayDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ottla-replay"

    def schema(self) -> StructType:
        return COLUMNS_WITH_HEADERS

    def streamReader(self, schema: StructType) -> "ReplayReader":
        return ReplayReader(self.options)


class Part(NamedTuple):
    """What one Spark task reads: first files of an archive, then the topic."""

    path: str = ""
    archived: Task | None = None
    topic: OffsetRange | None = None


class ReplayReader(StreamReader):
    """Reads those topics that existed when the replay began: one that is created later has other records."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.plan = Plan.from_json(options["plan"])
        topics = tuple(sorted({at.topic for at in self.plan.start}))
        super().__init__(replace(read_options(options, streaming=True), subscribe=topics))
        self._files_options = dict(options)
        self._missing = spans_by_partition(self.plan.missing)

    def initialOffset(self) -> dict[str, Any]:
        """With the ids of the topics, so that one that is created again before the first batch is noticed."""
        topics = Position(self.plan.start, self.plan.topic_ids).to_json()
        return topics | self._earlier_json({one.at: one.start for one in self.plan.earlier})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        done = from_json(start.get(_EARLIER, {}))
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        following = next_earlier(self.plan.earlier, done, rows_max)
        if following != done:
            return start | self._earlier_json(following)
        if not self.plan.start:
            return start
        last = {name: one for name, one in start.items() if name != _EARLIER}
        end = super().latestOffset(last, limit)
        return start if end == last else end | self._earlier_json(done)

    def _earlier_json(self, offsets: Offsets) -> dict[str, Any]:
        return {_EARLIER: to_json(offsets)} if offsets else {}

    def check_ids(self, last: Position, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        with _start_a_new_replay():
            return super().check_ids(last, partitions)

    def check_losses(self, begin: Offsets, earliest: Offsets, latest: Offsets) -> None:
        """What an archived topic has deleted is read from its archive: `partitions` reports what is not there."""
        readable = {
            at: min(offset, begin.get(at, offset)) if at.topic in self.plan.histories else offset
            for at, offset in earliest.items()
        }
        with _start_a_new_replay():
            super().check_losses(begin, readable, latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Looks up the files for every batch: a merge may have put the records into others."""
        first, last = (from_json(offset.get(_EARLIER, {})) for offset in (start, end))
        ranges = [one.value for one in super().partitions(start, end)]
        earliest = self._earliest({one.at for one in ranges if one.topic in self.plan.histories})
        archives = Archives(self._files_options)
        parts = []
        for one in ranges_between(first, last):
            path = self.plan.paths[topic_of(one.topic)]
            parts.append(Part(path, archives.task(path, one)))
        parts += [self._part(one, earliest.get(one.at, 0), archives) for one in ranges]
        return [InputPartition(part) for part in parts]

    def _earliest(self, wanted: set[TopicPartition]) -> Offsets:
        """The earliest offsets now. A topic that is gone has deleted everything."""
        present = wanted & self.discovery.partitions() if wanted else set()
        return dict.fromkeys(wanted, sys.maxsize) | self.discovery.earliest(present)

    def _part(self, wanted: OffsetRange, earliest: int, archives: Archives) -> Part:
        """Reads a range from the topic, and from its archive what is before the earliest offset."""
        if wanted.start >= earliest:
            return Part(topic=wanted)
        at = TopicPartition(self.plan.histories[wanted.topic], wanted.partition)
        path = self.plan.paths[wanted.topic]
        archived, rest, lost = split_range(
            wanted, earliest, archives.spans(path, at), self._missing.get(at, ())
        )
        if lost:
            raise PipelineError(
                f"{wanted.at} no longer has offset {lost[0]}, and the archive {path} does not have it either.",
                f"Restore the archive if it had these records. Otherwise: {_NEW_REPLAY}",
            )
        return Part(path, archives.task(path, archived._replace(topic=at.topic)), rest if rest.size else None)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        part: Part = partition.value
        if part.archived is not None:
            from ottla.pipeline.ingest.reload.reader import read_archived

            yield from read_archived(part.path, self._files_options, part.archived)
        if part.topic is not None:
            yield from self._read_topic(part.topic)

    def _read_topic(self, wanted: OffsetRange) -> "Iterator[pa.RecordBatch]":
        """Continues in the archive if retention deletes the records while they are read."""
        position = wanted.start
        try:
            for rows in super().read(InputPartition(wanted)):
                position = rows.column("offset")[-1].as_py() + 1
                yield rows
        except PipelineError:
            rest = wanted._replace(start=position)
            earliest = self._earliest({rest.at} if rest.topic in self.plan.histories else set())
            if position >= earliest.get(rest.at, 0):
                raise
            part = self._part(rest, earliest[rest.at], Archives(self._files_options))
            yield from self.read(InputPartition(part))


@contextmanager
def _start_a_new_replay() -> Iterator[None]:
    """The source of topics offers to continue without lost records. An archive may have them, so a replay must not."""
    try:
        yield
    except RetriableError:
        raise
    except PipelineError as error:
        raise PipelineError(error.what, f"To replay what is left, {_NEW_REPLAY}") from None
