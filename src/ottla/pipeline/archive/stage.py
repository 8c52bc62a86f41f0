"""The stage `kind = "archive"`: archives topics before their retention ends."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.coverage import Coverage
from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.histories import archived_ends, current_histories, histories_of, history_of
from ottla.pipeline.archive.lag import Lag, RetentionWatch, archive_lag, warnings
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.archive.manifest import Summary
from ottla.pipeline.archive.ownership import check_is_new, claim_topics
from ottla.pipeline.archive.samples import mean_record_bytes
from ottla.pipeline.archive.settings import ArchiveSettings, parse_interval_ms
from ottla.pipeline.archive.sizing import Sizing
from ottla.pipeline.archive.store import Archive, archive_gone
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import EARLIEST, OffsetRange, Offsets, Position, to_json
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import connect, missing_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_log = logging.getLogger(__name__)


class ArchiveSink:
    Settings = ArchiveSettings

    def __init__(self, name: str, settings: ArchiveSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        self.path = context.path(settings.path)
        self._watch: RetentionWatch | None = None

    def lags(self) -> Sequence[Lag]:
        """Of the last check of the retention, while the stage runs."""
        return () if self._watch is None else self._watch.lags

    def coverage(self) -> Sequence[Coverage]:
        """Of the last check, while the stage runs."""
        return () if self._watch is None else self._watch.coverage

    def check(self) -> Iterator[Finding]:
        where = f"[sinks.{self.name}]"
        if "://" not in self.path:
            yield from check_folder(Path(self.path), where)
        cluster = Discovery.of_topics(self.context.cluster.options(), self.settings.topics)
        try:
            parse_interval_ms(self.settings.every, where)
            present = {at.topic for at in cluster.partitions()}
            yield from missing_topics(self.settings.topics, present, self.context, where)
            yield from self._check_lag(where)
        except PipelineError as error:
            yield Finding(where, error.what, error.remedy)

    def _check_lag(self, where: str) -> Iterator[Finding]:
        if "://" in self.path or not Archive.at(self.path).exists():
            return
        for warning in warnings(archive_lag(self.context.cluster, self.settings.topics, self._ends())):
            yield Finding(
                where, warning, "Run the archive now, or raise the topic's retention.", is_warning=True
            )

    def risks(self, spark: "SparkSession | None" = None) -> list[str]:
        """What retention is about to delete, or has deleted, before it was archived."""
        connect(self.context.cluster)
        ends = self._committed_ends(spark)
        if ends is None and "://" not in self.path:
            ends = self._ends()
        if ends is None:
            # Both can be read only with Spark, as the status of the stage says.
            return []
        return warnings(archive_lag(self.context.cluster, self.settings.topics, ends))

    def _committed_ends(self, spark: "SparkSession | None") -> Offsets | None:
        """By the checkpoint: unlike manifests it does not grow. None if it cannot be read, or has no batch."""
        folder = self.context.checkpoint(self.name)
        if "://" in folder and spark is None:
            return None
        checkpoint = Checkpoint.at(folder, spark)
        last = checkpoint.last_committed()
        if last is None:
            return None
        position = checkpoint.topic_position(last)
        known = position.topic_ids or {}
        now = Discovery.of_topics(self.context.cluster.options(), self.settings.topics).topic_ids(known)
        # Of a topic that was created again nothing is archived.
        return {at: end for at, end in position.offsets.items() if now.get(at.topic) == known.get(at.topic)}

    def _ends(self) -> Offsets:
        """Up to where the topics are archived, without Spark."""
        cluster = Discovery.of_topics(self.context.cluster.options(), self.settings.topics)
        archived = Archive.at(self.path).summary()
        topic_ids = cluster.topic_ids(self.settings.topics)
        return archived_ends(archived, current_histories(archived, self.settings.topics, topic_ids))

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.archive.automatic_merge import AutomaticMerge
        from ottla.pipeline.archive.batch_writer import BatchWriter
        from ottla.pipeline.archive.delta import publish

        archive = Archive.at(self.path, spark)
        checkpoint = Checkpoint.at(self.context.checkpoint(self.name), spark)
        cluster = Discovery.of_topics(self.context.cluster.options(), self.settings.topics)
        # Before the claim: a start that fails must not stop a run that works, nor add a claim with each attempt.
        partitions, topic_ids = cluster.partitions(), cluster.topic_ids(self.settings.topics)
        check_archive(archive, checkpoint)
        check_position(archive, checkpoint)
        run = claim_topics(archive, self.settings.topics)
        archived = archive.summary()
        warn_of_unknown_ids(archived, topic_ids, checkpoint)
        histories = current_histories(archived, self.settings.topics, topic_ids)
        ends = archived_ends(archived, histories)
        earliest, latest = cluster.earliest(partitions), cluster.latest(partitions)
        start = starting_offsets(ends, earliest, latest)
        record_bytes = mean_record_bytes(self.context.cluster, earliest, latest)
        sizing = Sizing(record_bytes, spark.sparkContext.defaultParallelism)
        is_delta = self.settings.format == "delta"
        fail = self.settings.fail_on_data_loss
        merge = AutomaticMerge(archive) if self.settings.merge_small_files else None
        batch = sizing.offsets_per_batch(self.settings.max_offsets_per_batch)
        write = BatchWriter(
            archive,
            run,
            checkpoint,
            cluster,
            sizing,
            ends,
            is_delta=is_delta,
            fail_on_data_loss=fail,
            batch_offsets=batch,
            merge=merge,
            written=self.context.written(self.name),
        )
        with explain_write_errors(archive.url):
            publish(archive, write.logs(self._histories(archived, histories)))
        writer = self._stream(spark, start, sizing).writeStream.foreachBatch(write).queryName(self.name)
        query = (
            writer.option("checkpointLocation", self.context.checkpoint(self.name)).trigger(**trigger).start()
        )
        watched = Archive.at(self.path, spark)
        self._watch = RetentionWatch(self.context.cluster, self.settings.topics, watched, lambda: write.ends)
        self._watch.follow(query)
        return query

    def _histories(self, archived: Summary, current: Mapping[str, str]) -> list[str]:
        """All histories of the topics, also the current ones that are still empty."""
        earlier = {one for topic in self.settings.topics for one in histories_of(archived, topic)}
        return sorted(earlier | set(current.values()))

    def _stream(self, spark: "SparkSession", start: Offsets, sizing: Sizing) -> "DataFrame":
        """`every` is the most that the source waits for a whole batch, so nothing waits while there is a backlog."""
        batch = str(sizing.offsets_per_batch(self.settings.max_offsets_per_batch))
        every_ms = parse_interval_ms(self.settings.every, f"[sinks.{self.name}]")
        return self.context.stream(
            spark,
            ",".join(self.settings.topics),
            startingOffsets=json.dumps(to_json(start)),
            minOffsetsPerTrigger=batch,
            maxOffsetsPerTrigger=batch,
            maxTriggerDelay=f"{every_ms}ms",
            maxRecordsPerPartition=str(sizing.offsets_per_range()),
            includeLeaderEpoch="true",
            failOnDataLoss=str(self.settings.fail_on_data_loss).lower(),
        )


def check_folder(folder: Path, where: str) -> Iterator[Finding]:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        yield Finding(where, f"`path` cannot be a folder: {nearest} is a file.", "Name another path.")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(
            where,
            f"`path` cannot be written: {nearest} is not writable for this user.",
            "Allow this user to write there, or change `path`.",
        )


def check_archive(archive: Archive, checkpoint: Checkpoint) -> None:
    """Raises PipelineError if the checkpoint is ahead of the archive: then the archive is gone, or another one."""
    last = checkpoint.last_committed()
    if last is None:
        archive.files.make_folder(MANIFESTS)
    elif not archive.exists():
        raise archive_gone(archive.url)
    elif last > archive.summary().batches.get(str(checkpoint.query_id()), -1):
        raise PipelineError(
            f"The archive at {archive.url} does not hold batch {last}, which this stage has written.",
            "Restore the archive that belongs to this checkpoint. To continue after the offsets that this archive "
            "covers, remove the stage's checkpoint.",
        )


def check_position(archive: Archive, checkpoint: Checkpoint) -> None:
    """Raises PermanentStageError if the checkpoint would continue at offsets that are archived already."""
    archived = archive.summary()
    planned = checkpoint.last_planned()
    if planned is None:
        # A new query starts after the archived offsets.
        return
    # Spark may have planned one batch more than are archived, or not know that its last one is archived. A checkpoint
    # that was restored from a copy may be further behind.
    last = min(planned, archived.batches.get(str(checkpoint.query_id()), -1))
    done, following = (
        Position({}) if number < 0 else checkpoint.topic_position(number) for number in (last, last + 1)
    )
    position = done if following.start is None else following._replace(offsets=following.start)
    topic_ids = position.topic_ids or {}
    ranges = [
        OffsetRange(
            history_of(archived, at.topic, topic_ids.get(at.topic)), at.partition, offset, sys.maxsize
        )
        for at, offset in sorted(position.offsets.items())
    ]
    check_is_new(archived, ranges, archive.url, checkpoint.url)


def warn_of_unknown_ids(archived: Summary, topic_ids: Mapping[str, str], checkpoint: Checkpoint) -> None:
    """A new checkpoint has no topic ids either, so nothing tells whether the topic was created again."""
    if checkpoint.last_planned() is not None:
        return
    for topic in sorted(topic_ids):
        if topic in archived.histories and topic not in archived.topic_ids:
            _log.warning(
                "An older Ottla archived the topic %s, without the topic's id: if the topic was created again since, "
                "its first records are missing. Check it with `ottla pipeline verify --deep`.",
                topic,
            )


def starting_offsets(ends: Offsets, earliest: Offsets, latest: Offsets) -> Offsets:
    """Where a new query starts: after the archived offsets, or at the first that the topic still has."""
    start = {}
    for at, low in earliest.items():
        end = ends.get(at)
        if end is not None and end > latest[at]:
            raise _shorter_topic(at, end, latest[at])
        start[at] = EARLIEST if end is None else max(end, low)
    return start


def _shorter_topic(at: TopicPartition, archived_end: int, log_end: int) -> PipelineError:
    return PipelineError(
        f"{at} is archived up to offset {archived_end}, but ends at {log_end}: the topic lost records. Or it was "
        "created again, and the archive does not have its id.",
        "Archive it into another `path`, under another name of the stage.",
    )
