"""Verifies that every offset of the topics is archived once, or reports holes, duplicates and damaged files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.columns import SCHEMA
from ottla.pipeline.archive.coverage import (
    TWICE,
    Damage,
    OffsetFinding,
    Report,
    logs_of,
    missing_manifests,
    report_of,
)
from ottla.pipeline.archive.delta import DeltaLog
from ottla.pipeline.archive.delta_actions import path_in_table
from ottla.pipeline.archive.errors import explain_read_errors
from ottla.pipeline.archive.histories import histories_of
from ottla.pipeline.archive.layout import MANIFESTS, path_below_history, topic_of
from ottla.pipeline.archive.manifest import Archived, DataFile
from ottla.pipeline.archive.ranges import Span, union
from ottla.pipeline.archive.slices import Slice
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.unnamed import SKIP_DAMAGED
from ottla.pipeline.spark.offsets import Offsets, to_json
from ottla.pipeline.stage import ClusterSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# of each kind in one partition: more are of no use before these are fixed
_FINDINGS_MAX = 10_000

_MISSING = "on the cluster, but not in the archive's files"
_DIFFERENT = "other bytes in the archive than on the cluster"


def verify(
    spark: "SparkSession",
    cluster: ClusterSettings,
    path: str,
    topics: Sequence[str] = (),
    *,
    deep: bool = False,
    since: date | None = None,
) -> Report:
    """Reads the partition and offset of every record; with `since` only those in folders of this date or later.

    `deep` also compares every record that the topics still have with the archive's.
    """
    archive = Archive.at(path, spark)
    archive.check()
    archived = archive.load()
    chosen = list(topics) or archived.topics
    logs = logs_of(cluster, archived, chosen)
    findings: list[OffsetFinding] = []
    damage = missing_manifests(archived, archive.files) + check_lists(
        archived, chosen, archive.files.url(MANIFESTS)
    )
    for history in (history for topic in chosen for history in histories_of(archived, topic)):
        files = [file for file in archived.files_of(history) if since is None or _date_of(file) >= since]
        present, missing = _find_files(archive, files, history)
        found, broken = _check_files(spark, archive, present, history)
        findings += found
        damage += missing + broken + _check_delta_log(archive, history)
        if deep and history in {at.topic for at in logs.earliest}:
            urls = [archive.files.url(file.path) for file in present]
            compared = _compared_offsets(archived.ends, logs.earliest, history)
            findings += _compare_records(spark, cluster, urls, history, compared)
    return report_of(archived, chosen, logs, damage, found=findings, is_deep=deep, since=since)


def check_lists(archived: Archived, topics: Sequence[str], where: str) -> list[Damage]:
    """The files that the manifests and lists name must have as many records as batches added, also after merges."""
    named: dict[TopicPartition, int] = {}
    for file in archived.files.values():
        for partition, part in file.slices.items():
            at = TopicPartition(file.topic, partition)
            named[at] = named.get(at, 0) + part.records
    return [
        Damage(where, f"the files that it names have {has} records of {at}, and batches added {added}")
        for at in sorted(named.keys() | archived.records.keys())
        if topic_of(at.topic) in topics
        and (has := named.get(at, 0)) != (added := archived.records.get(at, 0))
    ]


def _date_of(file: DataFile) -> date:
    return date.fromisoformat(file.hour.date)


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
    rows = spark.read.schema("partition int, offset long").options(**SKIP_DAMAGED)
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


def _check_delta_log(archive: Archive, topic: str) -> list[Damage]:
    """A Delta table, if there is one, must list the files of the manifests that it includes."""
    log = DeltaLog(archive.files, topic)
    if not log.exists():
        return []
    _, known = log.position()
    named = {path_in_table(file.path) for file in archive.load(known).files_of(topic)}
    listed = log.listed_files()
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
        contents.setdefault(path_below_history(row.path), {})[row.partition] = content
    return contents


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
    files = spark.read.schema(SCHEMA).options(**SKIP_DAMAGED)
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
