"""Reads topics as a stream: decides the offsets of each micro-batch, and reads the records between them."""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

from ottla.model.ids import TopicPartition
from ottla.pipeline.spark.data_loss import find_losses, recreated_topics, report_loss
from ottla.pipeline.spark.discovery import Discovery, check_exists
from ottla.pipeline.spark.offsets import (
    Offsets,
    Position,
    count_offsets,
    limited,
    ranges_between,
    split,
    to_json,
)
from ottla.pipeline.spark.options import ReadOptions
from ottla.pipeline.spark.range_reader import read_range
from ottla.pipeline.spark.reader_process import QueryReader

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(QueryReader):
    """One process, which lives as long as the query, decides about offsets; `read` runs in executors."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        # with Trigger.AvailableNow: the end of the logs when the query started
        self.target: Offsets | None = None
        self.latest: Offsets | None = None
        self.has_checked_ids = False
        self.taken_at_s: float | None = None

    @cached_property
    def discovery(self) -> Discovery:
        return Discovery(self.options)

    def initialOffset(self) -> dict[str, Any]:
        partitions = self.discovery.partitions()
        check_exists(self.options, partitions)
        return to_json(self.discovery.resolve(self.options.start, partitions, is_start=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        return ReadAllAvailable() if self.options.rows_min is None else ReadMinRows(self.options.rows_min)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.discovery.latest(self.discovery.partitions())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self.latest is None else to_json(self.latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        last = Position.from_json(start)
        partitions = self.discovery.partitions()
        topic_ids = self.check_ids(last, partitions)
        self.latest = self.discovery.latest(partitions)
        earliest = self.discovery.earliest(partitions)
        begin = _beginning(last, topic_ids, earliest)
        self.check_losses(begin, earliest, self.latest)
        end = self.latest if self.target is None else _up_to_target(self.latest, self.target)
        # New partitions start at their beginning: the next batch reads them from there.
        end = {at: offset if at in begin else earliest[at] for at, offset in end.items()}
        if not isinstance(limit, ReadAllAvailable) and self.must_wait(count_offsets(begin, end)):
            return start
        self.taken_at_s = time.monotonic()
        end = limited(begin, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end
        if end == begin and topic_ids == last.topic_ids:
            # Another text for the same offsets would be an empty batch.
            return start
        is_known = last.topic_ids is not None and begin == last.offsets
        return Position(end, topic_ids, start=None if is_known else begin).to_json()

    def check_ids(self, last: Position, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Reports topics that were created again. Returns the known ids of the partitions' topics."""
        known, topics = last.topic_ids or {}, {at.topic for at in partitions}
        found = self.discovery.topic_ids(topics)
        for loss in recreated_topics(known, found):
            report_loss(loss, self.options.fail_on_data_loss)
        self.has_checked_ids = True
        return {topic: topic_id for topic, topic_id in {**known, **found}.items() if topic in topics}

    def check_losses(self, begin: Offsets, earliest: Offsets, latest: Offsets) -> None:
        """Reports records that the next batch should read and that the topics no longer have."""
        for loss in find_losses(begin, earliest, latest):
            report_loss(loss, self.options.fail_on_data_loss)

    def must_wait(self, rows: int) -> bool:
        """Whether there are fewer than minOffsetsPerTrigger, and the last batch is more recent than maxTriggerDelay."""
        if self.options.rows_min is None or self.target is not None or self.taken_at_s is None:
            return False
        waited_s = time.monotonic() - self.taken_at_s
        return rows < self.options.rows_min and waited_s < self.options.delay_max_s

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        last = Position.from_json(end)
        again: set[str] = set()
        if not self.has_checked_ids:
            # An earlier run planned this batch: the topics may have been created again since.
            again = _created_again(last, self.check_ids(last, last.offsets))
        begin = Position.from_json(start).offsets if last.start is None else last.start
        ranges = ranges_between(begin, last.offsets)
        parts = split(ranges, self.options.partitions_min, self.options.partition_rows_max)
        # The next batch reads a new topic from its beginning. The number of parts stays: a sink may have written some.
        return [InputPartition(one._replace(end=one.start) if one.topic in again else one) for one in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_range(self.options, partition.value)


def _created_again(last: Position, topic_ids: Mapping[str, str]) -> set[str]:
    known = last.topic_ids or {}
    return {topic for topic, topic_id in topic_ids.items() if known.get(topic, topic_id) != topic_id}


def _beginning(last: Position, topic_ids: Mapping[str, str], earliest: Offsets) -> Offsets:
    """Where the next batch begins: after the last one; a topic that was created again is read from its beginning."""
    again = _created_again(last, topic_ids)
    return {
        at: earliest.get(at, offset) if at.topic in again else offset for at, offset in last.offsets.items()
    }


def _up_to_target(latest: Offsets, target: Offsets) -> Offsets:
    """The target offsets, without partitions that are gone, and not beyond the end of a log."""
    return {at: min(offset, target[at]) for at, offset in latest.items() if at in target}
