"""Writes a micro-batch into the archive, exactly once.

The batch's files are staged, moved to names that only this batch of this run has, and added by its manifest, which is
written last, completely or not at all. A batch that runs again and finds its manifest has nothing to do. One that does
not find it writes its files again, and removes those of the earlier attempt once its own manifest exists.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.columns import archived_rows
from ottla.pipeline.archive.delta import DeltaLog, delta_logs, publish
from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.histories import current_histories
from ottla.pipeline.archive.layout import (
    STAGING,
    batch_name,
    hour_of,
    query_name,
    staging_query,
    topic_of,
)
from ottla.pipeline.archive.manifest import Batch, DataFile, Summary
from ottla.pipeline.archive.ownership import Run, check_is_new, clean_up
from ottla.pipeline.archive.ranges import Span, union
from ottla.pipeline.archive.sizing import Sizing
from ottla.pipeline.archive.staging import OrderedFiles
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.unnamed import deletable
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import OffsetRange, Offsets
from ottla.pipeline.written_bytes import WrittenBytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.archive.automatic_merge import AutomaticMerge

_log = logging.getLogger(__name__)

_GONE = Span(0, 0)


class BatchWriter:
    """Called by Spark with each micro-batch of one query."""

    def __init__(
        self,
        archive: Archive,
        run: Run,
        checkpoint: Checkpoint,
        cluster: Discovery,
        sizing: Sizing,
        ends: Offsets,
        *,
        is_delta: bool,
        fail_on_data_loss: bool,
        batch_offsets: int,
        merge: "AutomaticMerge | None" = None,
        written: WrittenBytes | None = None,
    ) -> None:
        """`ends` are the offsets up to which the topics are archived, `batch_offsets` those of a whole batch.

        `written` counts the bytes of the files that batches add.
        """
        self.archive = archive
        self.run = run
        self.checkpoint = checkpoint
        self.cluster = cluster
        self.sizing = sizing
        # replaced after each batch, and read by another thread
        self.ends = ends
        self.is_delta = is_delta
        self.fail_on_data_loss = fail_on_data_loss
        self.batch_offsets = batch_offsets
        self.merge = merge
        self.written = written
        # the Delta log of each history, if it has one
        self._logs: dict[str, DeltaLog | None] = {}
        self.is_first = True
        self.files = OrderedFiles()

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        with explain_write_errors(self.archive.url):
            try:
                self.write(rows, batch_id)
            except PipelineError:
                raise
            except Exception:
                # If another run has claimed the topics, it removed the files that this run had staged.
                self.run.check(self.archive.summary())
                raise

    def write(self, rows: "DataFrame", batch_id: int) -> None:
        self.archive.check()
        query_id = str(self.checkpoint.query_id())
        if self.is_first:
            _remove_staged(self.archive, query_id)
        if batch_id > self.archive.summary().batches.get(query_id, -1):
            self.add(rows, batch_id, query_id)
        else:
            _log.info("batch %d is archived already", batch_id)
        if self.is_first:
            # Only the first batch of a run can have had an earlier attempt.
            self.is_first = False
            _remove_earlier_attempts(rows.sparkSession, self.archive, batch_name(batch_id, query_id))
            clean_up(self.archive)

    def add(self, rows: "DataFrame", batch_id: int, query_id: str) -> None:
        position = self.checkpoint.topic_position(batch_id)
        end, topic_ids = position.offsets, position.topic_ids or {}
        start = position.start
        if start is None:
            start = self.checkpoint.topic_offsets(batch_id - 1) if batch_id else self.ends
        histories = current_histories(self.archive.summary(), sorted({at.topic for at in end}), topic_ids)
        name = f"{batch_name(batch_id, query_id)}-{self.run.name}"
        tasks = self.sizing.tasks(expected_records(start, end))
        files = self.files.write(self.archive, archived_rows(rows, histories), name, tasks)
        again = self.check_topics(batch_id, topic_ids, files)
        read = {at: offset for at, offset in end.items() if at.topic not in again}
        ranges = self.covered(rows.sparkSession, start, read, files)
        batch = Batch(
            query_id,
            batch_id,
            tuple(sorted(one._replace(topic=histories[one.topic]) for one in ranges)),
            files,
            {histories[topic]: one for topic, one in sorted(topic_ids.items()) if topic in histories},
        )

        def check(archived: Summary) -> None:
            self.run.check(archived)
            check_is_new(archived, batch.ranges, self.archive.url, self.checkpoint.url)

        self.archive.commit(batch, check)
        if self.written is not None:
            self.written.add(sum(file.bytes for file in files))
        publish(self.archive, self.logs(histories.values()))
        self.archive.files.delete(f"{STAGING}/{name}")
        self.archive.condense()
        self.ends = {**self.ends, **end}
        # After a whole batch the next one is ready, and must not wait.
        if self.merge is not None and expected_records(start, end) < self.batch_offsets:
            known = self.archive.summary().histories
            ours = [history for history in known if topic_of(history) in self.run.topics]
            self.merge.run(rows.sparkSession, self.logs(ours), ours)

    def check_topics(
        self, batch_id: int, topic_ids: Mapping[str, str], files: tuple[DataFile, ...]
    ) -> set[str]:
        """The topics that were created again since the batch was planned with these ids: it has none of their records.

        Raises RetriableError if it may have: they do not belong to the history of the planned id. Without
        `fail_on_data_loss` what was read of a topic that is gone stays.
        """
        now = self.cluster.topic_ids(topic_ids)
        again = {topic for topic, one in topic_ids.items() if now.get(topic, one) != one}
        if self.fail_on_data_loss:
            affected = again | (topic_ids.keys() - now.keys())
        else:
            affected = again & {topic_of(file.topic) for file in files}
        if affected:
            for file in files:
                self.archive.files.delete(file.path)
            raise RetriableError(
                f"The topic {min(affected)} was deleted while batch {batch_id} read it, and may have been created "
                "again.",
                "Nothing of the batch was added to the archive: it runs again.",
            )
        return again

    def covered(
        self, spark: Any, start: Offsets, end: Offsets, files: tuple[DataFile, ...]
    ) -> tuple[OffsetRange, ...]:
        """The offsets that a batch covers. With `fail_on_data_loss` it has read all that it should, or has failed."""
        unsure = [at for at in end if at not in start or not self.fail_on_data_loss]
        logs = {at: Span(start[at], end[at]) for at in end.keys() - unsure} | logs_of(self.cluster, unsure)
        inside = {
            at: log
            for at in unsure
            if (log := logs.get(at, _GONE)).start > start.get(at, 0) or log.end < end[at]
        }
        return batch_ranges(start, end, logs, _spans_outside(spark, self.archive, files, inside))

    def logs(self, histories: Iterable[str]) -> list[DeltaLog]:
        """Their Delta logs. If a topic is created again while the archive runs, its new history gets one too."""
        for history in histories:
            if history not in self._logs:
                found = delta_logs(self.archive, [history], wanted=self.is_delta)
                self._logs[history] = found[0] if found else None
        return [log for log in self._logs.values() if log is not None]


def _remove_staged(archive: Archive, query_id: str) -> None:
    """Removes what earlier runs of the query staged. On a full disk, each attempt would add more."""
    for name in archive.files.names(STAGING):
        if staging_query(name) == query_name(query_id):
            archive.files.delete(f"{STAGING}/{name}")


def _remove_earlier_attempts(spark: Any, archive: Archive, batch: str) -> None:
    """Removes files of earlier attempts at a batch. They hold the same records, so they are in the same folders.

    Unless the checkpoint was restored from a copy, or the topic has lost records since: then they may have more.
    """
    archived = archive.load()
    named = archived.files.keys() | {path for merge in archived.merges for path in merge.supersedes}
    # A merge may have superseded the batch's own files already.
    hours = {hour_of(path) for path in named if path.rpartition("/")[2].startswith(f"{batch}-")}
    found = (f"{hour.folder}/{name}" for hour in hours for name in archive.files.names(hour.folder))
    earlier = [
        path for path in found if path.rpartition("/")[2].startswith(f"{batch}-") and path not in named
    ]
    for path in deletable(spark, archive, archived, earlier):
        archive.files.delete(path)


def expected_records(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, offset - start.get(at, 0)) for at, offset in end.items())


def logs_of(cluster: Discovery, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Span]:
    """The offsets that the partitions have now, of those that exist: an offset of another would be asked in vain."""
    topics = cluster.topics() if partitions else {}
    there = [at for at in partitions if at.topic in topics and at.partition in topics[at.topic].partitions]
    earliest, latest = cluster.earliest(there), cluster.latest(there)
    return {at: Span(earliest[at], latest[at]) for at in there}


def _spans_outside(
    spark: Any, archive: Archive, files: tuple[DataFile, ...], inside: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, list[Span]]:
    """The offsets in the files that are not in these spans, of the partitions that have one."""
    urls = [
        archive.files.url(file.path)
        for file in files
        if any(TopicPartition(topic_of(file.topic), partition) in inside for partition in file.slices)
    ]
    if not urls:
        return {}
    wanted = F.lit(False)
    for at, span in inside.items():
        is_outside = (F.col("offset") < span.start) | (F.col("offset") >= span.end)
        wanted |= (F.col("topic") == at.topic) & (F.col("partition") == at.partition) & is_outside
    content = spark.read.schema("topic string, partition int, offset long").parquet(*urls)
    in_order = Window.partitionBy("topic", "partition").orderBy("offset")
    # Adjacent offsets have the same difference to their row numbers.
    spans = (
        content.where(wanted)
        .withColumn("difference", F.col("offset") - F.row_number().over(in_order))
        .groupBy("topic", "partition", "difference")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    )
    found: dict[TopicPartition, list[Span]] = {}
    for row in spans.collect():
        found.setdefault(TopicPartition(row.topic, row.partition), []).append(Span(row.first, row.last + 1))
    return found


def batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, Span],
    read: Mapping[TopicPartition, Iterable[Span]],
) -> tuple[OffsetRange, ...]:
    """The offsets that a batch covers, also those without a record: compacted, aborted, or control records.

    `logs` has the offsets of each partition after the batch; a partition that is gone is not in it. Other offsets may
    have been deleted before they were read. Of them the batch covers only those that it read, given by `read`, and the
    rest stays a hole.
    """
    ranges = []
    for at, last in sorted(end.items()):
        begin = start.get(at, 0)
        log = logs.get(at, _GONE)
        there = Span(max(begin, log.start), min(last, log.end))
        covered = [span for span in (there, *read.get(at, ())) if span.start < span.end]
        ranges += [OffsetRange(*at, *span) for span in union(covered)]
    return tuple(ranges)
