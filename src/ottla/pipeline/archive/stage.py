"""The stage `kind = "archive"`: archives topics before their retention ends."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.errors import explain_write_errors
from ottla.pipeline.archive.lag import RetentionWatch, archive_lag, warning_of
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.ownership import claim_topics
from ottla.pipeline.archive.settings import ArchiveSettings
from ottla.pipeline.archive.store import Archive, archive_gone
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import EARLIEST, Offsets, to_json
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import missing_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class ArchiveSink:
    Settings = ArchiveSettings

    def __init__(self, name: str, settings: ArchiveSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        self.path = context.path(settings.path)

    def check(self) -> Iterator[Finding]:
        where = f"[sinks.{self.name}]"
        if "://" not in self.path:
            yield from check_folder(Path(self.path), where)
        cluster = Discovery.of_topics(self.context.cluster.options(), self.settings.topics)
        try:
            present = {at.topic for at in cluster.partitions()}
            yield from missing_topics(self.settings.topics, present, self.context, where)
            yield from self._check_lag(where)
        except PipelineError as error:
            yield Finding(where, error.what, error.remedy)

    def _check_lag(self, where: str) -> Iterator[Finding]:
        if "://" in self.path or not Archive.at(self.path).exists():
            return
        for lag in archive_lag(self.context.cluster, self.settings.topics, Archive.at(self.path).load()):
            warning = warning_of(lag)
            if warning:
                yield Finding(
                    where, warning, "Run the archive now, or raise the topic's retention.", is_warning=True
                )

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.archive.batch_writer import BatchWriter
        from ottla.pipeline.archive.delta import delta_logs, publish

        archive = Archive.at(self.path, spark)
        checkpoint = Checkpoint.at(self.context.checkpoint(self.name), spark)
        cluster = Discovery.of_topics(self.context.cluster.options(), self.settings.topics)
        check_archive(archive, checkpoint)
        run = claim_topics(archive, self.settings.topics)
        logs = delta_logs(archive, run.topics, wanted=self.settings.format == "delta")
        with explain_write_errors(archive.url):
            publish(archive, logs)
        partitions = cluster.partitions()
        start = starting_offsets(archive.load(), cluster.earliest(partitions), cluster.latest(partitions))
        rows = self.context.stream(
            spark,
            ",".join(self.settings.topics),
            startingOffsets=json.dumps(to_json(start)),
            maxOffsetsPerTrigger=str(self.settings.max_offsets_per_batch),
            includeLeaderEpoch="true",
            failOnDataLoss=str(self.settings.fail_on_data_loss).lower(),
        )
        if "processingTime" in trigger:
            trigger = {"processingTime": self.settings.every}
        watch = RetentionWatch(self.context.cluster, self.settings.topics)
        write = BatchWriter(archive, run, logs, checkpoint, cluster, watch)
        writer = rows.writeStream.foreachBatch(write).queryName(self.name)
        return (
            writer.option("checkpointLocation", self.context.checkpoint(self.name)).trigger(**trigger).start()
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
    elif last > archive.load().batches.get(str(checkpoint.query_id()), -1):
        raise PipelineError(
            f"The archive at {archive.url} does not hold batch {last}, which this stage has written.",
            "Restore the archive that belongs to this checkpoint. To continue after the offsets that this archive "
            "covers, remove the stage's checkpoint.",
        )


def starting_offsets(archived: Archived, earliest: Offsets, latest: Offsets) -> Offsets:
    """Where a new query starts: after the archived offsets, or at the first that the topic still has."""
    start = {}
    for at, low in earliest.items():
        end = archived.ends.get(at)
        if end is not None and end > latest[at]:
            raise _recreated_topic(at, end, latest[at])
        start[at] = EARLIEST if end is None else max(end, low)
    return start


def _recreated_topic(at: TopicPartition, archived_end: int, log_end: int) -> PipelineError:
    return PipelineError(
        f"{at} is archived up to offset {archived_end}, but ends at {log_end}: the topic was deleted and created "
        "again, or lost records.",
        "Archive the new topic into another `path`, under another name of the stage.",
    )
