"""Replay: corrected logic over the raw topic from its beginning or a time, into topics beside those in use.

The replay has a checkpoint and a sink id of its own, made from the logic itself: one that was interrupted goes on when
it is asked for again, and one of other logic does not mix with it.
"""

import hashlib
import json
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.admin.cluster import Cluster as Connection
from ottla.admin.cluster import ClusterError
from ottla.admin.moments import parse_datetime_ms
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.topics import create_topic, list_offsets
from ottla.pipeline.comparison import Comparison, Ranges, compare
from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.stage import Context
from ottla.pipeline.topics import connect
from ottla.pipeline.transform.dead_letters import Output
from ottla.pipeline.transform.settings import TransformSettings
from ottla.pipeline.transform.stage import Transform


def replay(
    spark: SparkSession, transform: Transform, *, to: str, from_: str = "earliest"
) -> list[Comparison]:
    """Runs the transform as it is now from `from_` ("earliest" or an ISO time) into `to`, and compares.

    What the transform writes to its own `to` goes to `to`; what it writes to another topic T, dead letters too, goes to
    `to`-T. Ends when everything that was in the raw topics is done.
    """
    settings, context = transform.settings, transform.context
    position = starting_position(from_)
    if to in (*settings.topics, settings.to, settings.dead_letters):
        raise PipelineError(
            f"A replay of {transform.name} cannot write to {to}, which the transform itself uses.",
            f"Choose a new topic, as in --to {settings.to}-replay.",
        )
    connection = connect(context.cluster)
    ranges = {topic: range_of(connection, topic, position) for topic in settings.topics}
    name = replay_name(transform.name, settings, to, from_, logic_text(context.folder, settings))
    refuse_foreign_records(spark, connection, to, context.checkpoint(name))
    make_topics(connection, settings, to)
    run(spark, transform, name, to, ranges)
    return [
        compare(topic_rows(spark, context, old), topic_rows(spark, context, new), (old, new), ranges)
        for old, new in topic_pairs(set(connection.metadata().topics), settings.to, to)
    ]


def run(spark: SparkSession, transform: Transform, name: str, to: str, ranges: Ranges) -> None:
    settings = transform.settings
    ending = Output(
        transform.name,
        settings.topics,
        settings.to,
        settings.dead_letters,
        settings.origin_headers,
        rename=lambda topic: renamed(topic, settings.to, to),
    )
    starting = {
        topic: {str(partition): low for partition, (low, _) in parts.items()}
        for topic, parts in ranges.items()
    }
    records = transform.records(spark, ending, startingOffsets=json.dumps(starting))
    query = transform.context.to_topics(records, name).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        failure = summarize(error)
        raise (PassingError if failure.is_retriable else PipelineError)(
            f"The replay of {transform.name} ended: {failure.sentence}",
            "Mend that and start the same replay again: it goes on where it was.",
        ) from error


def renamed(topic: Column, live: str, to: str) -> Column:
    return F.when(topic == live, F.lit(to)).otherwise(F.concat(F.lit(f"{to}-"), topic))


def topic_pairs(present: set[str], live: str, to: str) -> list[tuple[str, str]]:
    """The topics in use and those of the replay that stand beside them."""
    others = sorted(topic for topic in present if f"{to}-{topic}" in present and topic != live)
    pairs = [(live, to), *((topic, f"{to}-{topic}") for topic in others)]
    return [(old, new) for old, new in pairs if old in present and new in present]


def replay_name(stage: str, settings: TransformSettings, to: str, from_: str, logic: str) -> str:
    """The name of the checkpoint and of the sink: another logic, or another beginning, is another replay."""
    said = json.dumps([settings.topics, settings.options, from_, logic], sort_keys=True, default=str)
    return f"{stage}.replay.{to}.{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def logic_text(folder: Path, settings: TransformSettings) -> str:
    file = settings.sql or settings.function.rpartition(":")[0]
    try:
        return f"{settings.function} {(folder / file).read_text(encoding='utf-8')}"
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"The transform's file {file} cannot be read: {error}.", "Mend its path."
        ) from None


def starting_position(from_: str) -> Position:
    if from_ == "earliest":
        return EARLIEST
    try:
        return Position("time", parse_datetime_ms(from_))
    except ValueError as error:
        raise PipelineError(
            f"The replay cannot begin at {from_!r}: {error}.", "Give `earliest` or an ISO time."
        ) from None


def range_of(connection: Connection, topic: str, position: Position) -> dict[int, tuple[int, int]]:
    """Of each partition the offset at `position` and the end as it is now."""
    present = connection.metadata().topics
    if topic not in present:
        raise PipelineError(f"There is no topic {topic} to replay from.", "Mend `from` of the transform.")
    partitions = list(present[topic].partitions)
    ends = list_offsets(connection, topic, partitions, LATEST)
    found = list_offsets(connection, topic, partitions, position)
    # -1: no record is so late
    return {part: (low if low >= 0 else ends[part], ends[part]) for part, low in found.items()}


def refuse_foreign_records(spark: SparkSession, connection: Connection, to: str, checkpoint: str) -> None:
    """Into a topic with records only a replay may write that has begun to fill it."""
    present = connection.metadata().topics
    if to not in present or path_exists(spark, checkpoint):
        return
    partitions = list(present[to].partitions)
    if list_offsets(connection, to, partitions, LATEST) != list_offsets(connection, to, partitions, EARLIEST):
        raise PipelineError(
            f"The topic {to} holds records that are not of this replay: of other logic, or of something else.",
            "Choose another topic, or delete it first.",
        )


def path_exists(spark: SparkSession, path: str) -> bool:
    hadoop = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(hadoop.getFileSystem(spark._jsc.hadoopConfiguration()).exists(hadoop))


def make_topics(connection: Connection, settings: TransformSettings, to: str) -> None:
    """The topics beside those in use, with as many partitions."""
    present = connection.metadata().topics
    pairs = [(settings.to, to)]
    if settings.dead_letters:
        pairs.append((settings.dead_letters, f"{to}-{settings.dead_letters}"))
    for live, name in pairs:
        if name in present:
            continue
        count = len(present[live].partitions) if live in present else -1
        try:
            create_topic(connection, name, partitions=count, replication_factor=-1, configs={})
        except ClusterError as error:
            raise PipelineError(f"{error}.", "Make the topic yourself, and replay again.") from None


def topic_rows(spark: SparkSession, context: Context, topic: str) -> DataFrame:
    reader = spark.read.format("ottla").options(**context.cluster.options())
    options = {"subscribe": topic, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    return reader.options(**options).load()
