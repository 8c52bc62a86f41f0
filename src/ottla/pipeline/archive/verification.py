"""Verifies that every offset of the topics is archived once, or reports holes, duplicates and damaged files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.columns import SCHEMA
from ottla.pipeline.archive.delta import DeltaLog
from ottla.pipeline.archive.delta_actions import path_in_table
from ottla.pipeline.archive.errors import explain_read_errors
from ottla.pipeline.archive.histories import current_histories, histories_of
from ottla.pipeline.archive.layout import topic_of
from ottla.pipeline.archive.manifest import Archived, DataFile, Slice, combine
from ottla.pipeline.archive.ranges import Span, holes, overlaps, spans_by_partition, union
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import Offsets, to_json
from ottla.pipeline.stage import ClusterSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# of each kind in one partition: more are of no use before these are fixed
_FINDINGS_MAX = 10_000
_SKIP_DAMAGED = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}

HOLE = "not archived"
CREATED_AGAIN = "not archived; the topic was deleted and created again"
DELETED = "deleted by the topic before it was archived"
TWICE = "archived more than once"
_MISSING = "on the cluster, but not in the archive's files"
_DIFFERENT = "other bytes in the archive than on the cluster"


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


@dataclass(frozen=True)
class Report:
    extents: tuple[Extent, ...]
    findings: tuple[OffsetFinding, ...]
    damage: tuple[Damage, ...]
    is_deep: bool
    # histories whose topic id the archive does not have
    unknown_ids: tuple[str, ...] = ()

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
        compared = "compared with the cluster byte for byte" if self.is_deep else "by manifests and files"
        lines.append(f"The archive is whole ({compared})." if self.is_whole else "The archive is not whole.")
        return lines

    def _is_whole_of(self, at: TopicPartition) -> bool:
        return not self.damage and all(finding.at != at for finding in self.findings)


def verify(
    spark: "SparkSession",
    cluster: ClusterSettings,
    path: str,
    topics: Sequence[str] = (),
    *,
    deep: bool = False,
) -> Report:
    """`deep` also compares every record that the topics still have with the archive's."""
    archive = Archive.at(path, spark)
    archive.check()
    archived = archive.load()
    chosen = list(topics) or archived.topics
    histories = [history for topic in chosen for history in histories_of(archived, topic)]
    logs = logs_of(cluster, archived, chosen)
    findings = check_coverage(archived, histories, logs.earliest) + check_current(archived, logs)
    damage: list[Damage] = []
    for history in histories:
        present, missing = _find_files(archive, archived.files_of(history), history)
        found, broken = _check_files(spark, archive, present, history)
        findings += found
        damage += missing + broken + _check_delta_log(spark, archive, history)
        if deep and history in {at.topic for at in logs.earliest}:
            urls = [archive.files.url(file.path) for file in present]
            compared = _compared_offsets(archived.ends, logs.earliest, history)
            findings += _compare_records(spark, cluster, urls, history, compared)
    extents = _extents_of(archived, histories, logs.earliest, logs.latest)
    unknown = tuple(one for one in histories if one in logs.ids and one not in archived.topic_ids)
    return Report(extents, tuple(sorted(set(findings))), tuple(damage), deep, unknown)


class Logs(NamedTuple):
    """The topics as the cluster has them now, under the names of their histories. `ids` are their topic ids."""

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str]


def logs_of(cluster: ClusterSettings, archived: Archived, topics: Sequence[str]) -> Logs:
    discovery = Discovery.of_topics(cluster.options(), topics)
    partitions = discovery.partitions()
    topic_ids = discovery.topic_ids({at.topic for at in partitions})
    current = current_histories(archived, topics, topic_ids)
    earliest, latest = (
        {TopicPartition(current[at.topic], at.partition): offset for at, offset in offsets.items()}
        for offsets in (discovery.earliest(partitions), discovery.latest(partitions))
    )
    return Logs(earliest, latest, {current[topic]: one for topic, one in topic_ids.items()})


def check_current(archived: Archived, logs: Logs) -> list[OffsetFinding]:
    """Finds the records of a topic that was created again, of which nothing is archived yet."""
    known = archived.histories
    return [
        OffsetFinding(at, Span(logs.earliest[at], end), CREATED_AGAIN)
        for at, end in logs.latest.items()
        if at.topic not in known and histories_of(archived, topic_of(at.topic)) and end > logs.earliest[at]
    ]


def check_coverage(
    archived: Archived, histories: Sequence[str], earliest: Mapping[TopicPartition, int]
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


def _extents_of(
    archived: Archived,
    histories: Sequence[str],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> tuple[Extent, ...]:
    records: dict[TopicPartition, int] = {}
    for file in archived.files.values():
        for partition, one in file.slices.items():
            at = TopicPartition(file.topic, partition)
            records[at] = records.get(at, 0) + one.records
    starts = archived.starts
    return tuple(
        Extent(at, starts[at], end, records.get(at, 0), earliest.get(at), latest.get(at))
        for at, end in sorted(archived.ends.items())
        if at.topic in histories
    )


def _find_files(
    archive: Archive, files: Sequence[DataFile], topic: str
) -> tuple[list[DataFile], list[Damage]]:
    """The files that exist, and the damage of those that do not."""
    there = {found.path for found in archive.files.below(topic)} if files else set()
    missing = [
        Damage(archive.files.url(file.path), "it is missing") for file in files if file.path not in there
    ]
    return [file for file in files if file.path in there], missing


def _check_files(
    spark: "SparkSession", archive: Archive, files: Sequence[DataFile], topic: str
) -> tuple[list[OffsetFinding], list[Damage]]:
    """Reads the partition and offset of every record, and compares them with the manifests."""
    if not files:
        return [], []
    rows = spark.read.schema("partition int, offset long").options(**_SKIP_DAMAGED)
    placed = rows.parquet(*(archive.files.url(file.path) for file in files)).select(
        "partition",
        "offset",
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.row_index").alias("row"),
    )
    with explain_read_errors(archive.url):
        contents = _contents_of(placed)
        repeated = _repeated_offsets(placed)
    damage = []
    for file in files:
        wrong = compare_file(file, contents.get(file.path.removeprefix(topic), {}))
        if wrong:
            damage.append(Damage(archive.files.url(file.path), wrong))
    return [
        OffsetFinding(TopicPartition(topic, partition), span, TWICE) for partition, span in repeated
    ], damage


def _check_delta_log(spark: "SparkSession", archive: Archive, topic: str) -> list[Damage]:
    """A Delta table, if there is one, must list the files of the manifests that it includes."""
    log = DeltaLog(archive.files, topic)
    if not log.exists():
        return []
    _, known = log.position()
    included = {number: one for number, one in archive.manifests().items() if number <= known}
    named = {path_in_table(file.path) for file in combine(included).files_of(topic)}
    listed = log.listed_files(spark)
    if listed == named:
        return []
    more, fewer = len(listed - named), len(named - listed)
    what = f"it lists {more} files that the manifests do not name, and lacks {fewer} that they name"
    return [Damage(log.url, what)]


class Content(NamedTuple):
    """The content of a file from a partition, and how many of its records are out of order."""

    slice: Slice
    disorder: int


def _contents_of(rows: "DataFrame") -> dict[str, dict[int, Content]]:
    in_file = Window.partitionBy("path", "partition").orderBy("row")
    before = F.lag("offset").over(in_file)
    counted = (
        rows.withColumn("disorder", F.coalesce((F.col("offset") <= before).cast("int"), F.lit(0)))
        .groupBy("path", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.sum("disorder").alias("disorder"),
        )
    )
    contents: dict[str, dict[int, Content]] = {}
    for row in counted.collect():
        content = Content(Slice(row.first, row.last, row.records), row.disorder)
        contents.setdefault(_tail(row.path), {})[row.partition] = content
    return contents


def _tail(path: str) -> str:
    """The end of a URL, from the hour's folder on: Spark writes the rest in different ways."""
    return path[path.rindex("/date=") :]


def compare_file(file: DataFile, content: Mapping[int, Content]) -> str | None:
    """What is wrong with a file's content; None if nothing is."""
    if not content and file.records:
        return f"it cannot be read; the manifest says that it holds {file.records} records"
    for partition in sorted(file.slices.keys() | content.keys()):
        expected, found = file.slices.get(partition), content.get(partition)
        if found is None or expected != found.slice:
            content_text = _shown(found and found.slice)
            return f"of partition {partition} it holds {content_text}, its manifest says {_shown(expected)}"
        if found.disorder:
            return f"its offsets of partition {partition} are not in order"
    return None


def _shown(one: Slice | None) -> str:
    return "nothing" if one is None else f"{one.records} records, offsets {one.first} to {one.last}"


def _repeated_offsets(rows: "DataFrame") -> list[tuple[int, Span]]:
    repeated = rows.groupBy("partition", "offset").count().where("count > 1").limit(_FINDINGS_MAX)
    return spans_of(repeated.select("partition", "offset").collect())


def spans_of(rows: Iterable[Any]) -> list[tuple[int, Span]]:
    """Single offsets, joined into spans."""
    by_partition: dict[int, list[Span]] = {}
    for partition, offset in rows:
        by_partition.setdefault(partition, []).append(Span(offset, offset + 1))
    return [(partition, span) for partition, spans in sorted(by_partition.items()) for span in union(spans)]


def _compared_offsets(
    ends: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int], history: str
) -> tuple[Offsets, Offsets]:
    """The archived offsets that the cluster still has: start and end of each partition of the topic."""
    start, end = {}, {}
    for at, low in earliest.items():
        if at.topic == history:
            on_cluster = TopicPartition(topic_of(history), at.partition)
            start[on_cluster], end[on_cluster] = low, max(low, ends.get(at, low))
    return start, end


def _compare_records(
    spark: "SparkSession",
    cluster: ClusterSettings,
    urls: Sequence[str],
    history: str,
    offsets: tuple[Offsets, Offsets],
) -> list[OffsetFinding]:
    """Finds records of the topic between the offsets that are not in the archive's files, or have other bytes there."""
    start, end = offsets
    options = {
        **cluster.options(),
        "subscribe": topic_of(history),
        "startingOffsets": json.dumps(to_json(start)),
        "endingOffsets": json.dumps(to_json(end)),
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    theirs = _with_digest(spark.read.format("ottla").options(**options).load(), "theirs")
    files = spark.read.schema(SCHEMA).options(**_SKIP_DAMAGED)
    ours = _with_digest(files.parquet(*urls) if urls else spark.createDataFrame([], SCHEMA), "ours")
    unlike = (
        theirs.join(ours, ["partition", "offset"], "left").where("not theirs <=> ours").limit(_FINDINGS_MAX)
    )
    rows = unlike.select("partition", "offset", F.isnull("ours").alias("missing")).collect()
    missing = [(row.partition, row.offset) for row in rows if row.missing]
    different = [(row.partition, row.offset) for row in rows if not row.missing]
    return [
        OffsetFinding(TopicPartition(history, partition), span, what)
        for what, found in ((_MISSING, missing), (_DIFFERENT, different))
        for partition, span in spans_of(found)
    ]


def _with_digest(rows: "DataFrame", name: str) -> "DataFrame":
    """A hash over all fields of a record. It skips nulls, so whether a field is null is hashed too."""
    columns = ("key", "value", "headers", "timestamp", "timestampType")
    digest = F.xxhash64(*(F.isnull(column) for column in columns), *columns)
    return rows.select("partition", "offset", digest.alias(name))
