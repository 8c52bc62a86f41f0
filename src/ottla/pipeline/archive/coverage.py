"""Verifies which offsets of the topics are archived, by the summary of the archive alone: without Spark and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.errors import explain_read_errors
from ottla.pipeline.archive.filesystem import readable_files
from ottla.pipeline.archive.histories import current_histories, histories_of
from ottla.pipeline.archive.layout import MANIFESTS, manifest_file, topic_of
from ottla.pipeline.archive.manifest import Summary, summarize
from ottla.pipeline.archive.ranges import Span, holes, overlaps, spans_by_partition
from ottla.pipeline.archive.store import Manifests, archive_gone
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import ReadableFiles, files_at
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import Offsets
from ottla.pipeline.stage import ClusterSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLE = "not archived"
NOTHING = "nothing of the partition is archived yet"
CREATED_AGAIN = "not archived; the topic was deleted and created again"
DELETED = "deleted by the topic before it was archived"
TWICE = "archived more than once"


class OffsetFinding(NamedTuple):
    """Offsets of a partition, and what is wrong with them."""

    at: TopicPartition
    span: Span
    what: str

    def __str__(self) -> str:
        return f"{self.at} offset {self.span}: {self.what}."


class Damage(NamedTuple):
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}."


class Extent(NamedTuple):
    """The archived offsets of a partition (`end` is not included), and those that the cluster still has."""

    at: TopicPartition
    start: int
    end: int
    records: int
    earliest: int | None
    latest: int | None

    @property
    def behind(self) -> str:
        count = 0 if self.latest is None else self.latest - self.end
        return f", {count} newer offsets are not archived yet" if count > 0 else ""


class Coverage(NamedTuple):
    """How much of a partition is archived.

    `offsets` are all that it has on the cluster, `covered` those of them that the archive covers. `holes` are ranges
    before the end of the archive that it does not cover, with `hole_offsets`; the topic may have deleted them since.
    """

    at: TopicPartition
    offsets: int
    covered: int
    holes: int
    hole_offsets: int


@dataclass(frozen=True)
class Report:
    extents: tuple[Extent, ...]
    findings: tuple[OffsetFinding, ...]
    damage: tuple[Damage, ...]
    is_deep: bool
    # histories whose topic id the archive does not have
    unknown_ids: tuple[str, ...] = ()
    # only by the ranges of offsets, without a look at files
    is_by_ranges: bool = False
    # only files from this date on
    since: date | None = None

    @property
    def is_whole(self) -> bool:
        return not self.findings and not self.damage

    def sentences(self) -> list[str]:
        """The lines of the report: what is wrong, then what was verified."""
        lines = [str(one) for one in (*self.damage, *self.findings)]
        for one in self.extents:
            verdict = "every offset once" if self._is_whole_of(one.at) else "see above"
            lines.append(
                f"{one.at}: offsets {one.start} to {one.end - 1}, {one.records} records: {verdict}{one.behind}."
            )
        if not self.extents:
            return [*lines, "Nothing is archived yet."]
        lines += [
            f"{history}: the archive does not have the id of this topic. Only --deep shows if it was created again."
            for history in self.unknown_ids
            if not self.is_deep
        ]
        lines.append(
            f"The archive is whole ({self._compared})." if self.is_whole else "The archive is not whole."
        )
        return lines

    @property
    def _compared(self) -> str:
        if self.is_deep:
            return "compared with the cluster byte for byte"
        if self.is_by_ranges:
            return "by ranges of offsets; no file was read"
        return "by manifests and files" + (f" since {self.since}" if self.since else "")

    def _is_whole_of(self, at: TopicPartition) -> bool:
        return not self.damage and all(finding.at != at for finding in self.findings)


def can_read(path: str, options: Mapping[str, str]) -> bool:
    """Whether Python reads the file system, without Spark. `options` are Hadoop's settings, for S3."""
    try:
        readable_files(path, options)
    except PipelineError:
        return False
    return True


def verify_ranges(
    cluster: ClusterSettings,
    path: str,
    topics: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
) -> Report:
    """Its cost does not depend on the number of batches and files. Only a path that `can_read` denies needs Spark."""
    files = readable_files(path, options or {}) if spark is None else files_at(path, spark)
    with explain_read_errors(files.url()):
        if not files.names(MANIFESTS):
            raise archive_gone(files.url())
        recent = Manifests(files).recent()
    archived = summarize(recent.manifests, recent.condensed.summary)
    chosen = list(topics) or archived.topics
    logs = logs_of(cluster, archived, chosen)
    return report_of(archived, chosen, logs, missing_manifests(archived, files), is_by_ranges=True)


def coverage_of(cluster: ClusterSettings, archived: Summary, topics: Sequence[str]) -> list[Coverage]:
    """Of each partition that the topics have now."""
    logs = logs_of(cluster, archived, topics)
    spans = spans_by_partition(archived.ranges)
    return [
        partition_coverage(at, spans.get(at, []), Span(low, logs.latest[at]))
        for at, low in sorted(logs.earliest.items())
    ]


def partition_coverage(at: TopicPartition, archived: Sequence[Span], log: Span) -> Coverage:
    """`at` is a partition of a history, `log` what the topic has of it."""
    end = max((span.end for span in archived), default=log.start)
    missing = holes(archived, min([log.start, *(span.start for span in archived)]), end)
    not_covered = holes(archived, log.start, log.end)
    offsets = log.end - log.start
    return Coverage(
        TopicPartition(topic_of(at.topic), at.partition),
        offsets,
        offsets - sum(span.end - span.start for span in not_covered),
        len(missing),
        sum(span.end - span.start for span in missing),
    )


def report_of(
    archived: Summary,
    topics: Sequence[str],
    logs: "Logs",
    damage: Sequence[Damage],
    *,
    found: Sequence[OffsetFinding] = (),
    is_deep: bool = False,
    is_by_ranges: bool = False,
    since: date | None = None,
) -> Report:
    """`found` are findings in the files."""
    histories = [history for topic in topics for history in histories_of(archived, topic)]
    findings = {
        *found,
        *check_coverage(archived, histories, logs.earliest),
        *check_current(archived, logs),
        *check_partitions(archived, logs),
    }
    unknown = tuple(one for one in histories if one in logs.ids and one not in archived.topic_ids)
    extents = _extents_of(archived, histories, logs)
    return Report(extents, tuple(sorted(findings)), tuple(damage), is_deep, unknown, is_by_ranges, since)


def missing_manifests(archived: Summary, files: ReadableFiles) -> list[Damage]:
    what = "it is missing; what it names does not count as archived"
    return [Damage(files.url(manifest_file(number)), what) for number in archived.missing]


class Logs(NamedTuple):
    """The topics as the cluster has them now, under the names of their histories. `ids` are their topic ids."""

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str]


def logs_of(cluster: ClusterSettings, archived: Summary, topics: Sequence[str]) -> Logs:
    discovery = Discovery.of_topics(cluster.options(), topics)
    partitions = discovery.partitions()
    topic_ids = discovery.topic_ids({at.topic for at in partitions})
    current = current_histories(archived, topics, topic_ids)
    earliest, latest = (
        {TopicPartition(current[at.topic], at.partition): offset for at, offset in offsets.items()}
        for offsets in (discovery.earliest(partitions), discovery.latest(partitions))
    )
    return Logs(earliest, latest, {current[topic]: one for topic, one in topic_ids.items()})


def check_current(archived: Summary, logs: Logs) -> list[OffsetFinding]:
    """Finds the records of a topic that was created again, of which nothing is archived yet."""
    known = archived.histories
    return [
        OffsetFinding(at, Span(logs.earliest[at], end), CREATED_AGAIN)
        for at, end in logs.latest.items()
        if at.topic not in known and histories_of(archived, topic_of(at.topic)) and end > logs.earliest[at]
    ]


def check_partitions(archived: Summary, logs: Logs) -> list[OffsetFinding]:
    """Finds the records of partitions that were never archived: of a new topic, or one that got more partitions."""
    known, ends = archived.histories, archived.ends
    return [
        OffsetFinding(at, Span(logs.earliest[at], end), NOTHING)
        for at, end in logs.latest.items()
        if at not in ends
        and end > logs.earliest[at]
        # Otherwise the topic was created again: see check_current.
        and (at.topic in known or not histories_of(archived, topic_of(at.topic)))
    ]


def check_coverage(
    archived: Summary, histories: Sequence[str], earliest: Mapping[TopicPartition, int]
) -> list[OffsetFinding]:
    """Finds offsets that no batch covers, or more than one, by the manifests alone."""
    findings = []
    for at, spans in spans_by_partition(archived.ranges).items():
        if at.topic not in histories:
            continue
        low = earliest.get(at, spans[0].start)
        findings += [OffsetFinding(at, span, TWICE) for span in overlaps(spans)]
        for hole in holes(spans, min(low, spans[0].start), max(span.end for span in spans)):
            gone, there = Span(hole.start, min(hole.end, low)), Span(max(hole.start, low), hole.end)
            findings += [OffsetFinding(at, gone, DELETED)] if gone.start < gone.end else []
            findings += [OffsetFinding(at, there, HOLE)] if there.start < there.end else []
    return findings


def _extents_of(archived: Summary, histories: Sequence[str], logs: Logs) -> tuple[Extent, ...]:
    starts = archived.starts
    return tuple(
        Extent(at, starts[at], end, archived.records.get(at, 0), logs.earliest.get(at), logs.latest.get(at))
        for at, end in sorted(archived.ends.items())
        if at.topic in histories
    )
