"""Replay: runs corrected logic over the raw topic, from its beginning or a time, into topics beside those in use.

What the topic has deleted, or all of a topic that is gone, comes from the archive.

A replay has a checkpoint and a sink id of its own, made from its logic. So the same command resumes a replay that was
interrupted, and replays of different logic do not mix.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.timestamps import parse_datetime_ms
from ottla.admin.topics import create_topic, list_offsets
from ottla.pipeline.archive.filesystem import credentials
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.replay.comparison import Comparison, compare
from ottla.pipeline.replay.plan import Plan, compared_ranges, describe_missing
from ottla.pipeline.replay.planning import ArchiveStage, Planner
from ottla.pipeline.spark.offsets import to_json
from ottla.pipeline.stage import Context
from ottla.pipeline.topics import connect, end_offsets
from ottla.pipeline.transform.dead_letters import Output
from ottla.pipeline.transform.settings import TransformSettings
from ottla.pipeline.transform.stage import Transform

_log = logging.getLogger(__name__)


def replay(
    spark: SparkSession,
    transform: Transform,
    *,
    to: str,
    from_: str = "earliest",
    archives: Mapping[str, ArchiveStage] | None = None,
    warn: Callable[[str], None] = _log.warning,
) -> list[Comparison]:
    """Runs the transform, as it is now, from `from_` ("earliest" or an ISO time) into `to`, and compares the topics.

    Records for the transform's own `to` go to `to`; those for another topic T, also dead letters, go to `to`-T. Ends
    when it has processed the records that were in the raw topics at the start. What these have deleted it reads from
    `archives`, by topic; `warn` gets a line for each range of offsets that nobody has.
    """
    settings, context = transform.settings, transform.context
    position = parse_start(from_)
    if to in (*settings.topics, settings.to, settings.dead_letters):
        raise PipelineError(
            f"A replay of {transform.name} cannot write to {to}, which the transform itself uses.",
            f"Choose a new topic, as in --to {settings.to}-replay.",
        )
    cluster = connect(context.cluster)
    name = replay_name(transform.name, settings, to, from_, read_logic(context.folder, settings))
    checkpoint = context.checkpoint(name)
    _check_target(spark, cluster, to, checkpoint)
    plan = Planner(spark, context, cluster, archives or {}).plan(checkpoint, settings.topics, position)
    for line in describe_missing(plan):
        warn(line)
    ranges = compared_ranges(plan, end_offsets(cluster, {at.topic for at in plan.start}))
    _create_topics(cluster, settings, to)
    _run(spark, transform, name, to, plan)
    return [
        compare(_topic_rows(spark, context, old), _topic_rows(spark, context, new), (old, new), ranges)
        for old, new in topic_pairs(set(cluster.metadata().topics), settings.to, to)
    ]


def _run(spark: SparkSession, transform: Transform, name: str, to: str, plan: Plan) -> None:
    settings = transform.settings
    output = Output(
        transform.name,
        settings.topics,
        settings.to,
        settings.dead_letters,
        settings.origin_headers,
        rename=lambda topic: _rename_topic(topic, settings.to, to),
    )
    if plan.paths:
        options = {key: one for path in plan.paths.values() for key, one in credentials(spark, path).items()}
        # What the topics lose on the way is in an archive, or the plan was wrong.
        options |= {"plan": plan.to_json(), "failOnDataLoss": "true"}
        records = transform.records(spark, output, "ottla-replay", **options)
    else:
        records = transform.records(spark, output, startingOffsets=json.dumps(to_json(plan.start)))
    query = transform.context.to_topics(records, name).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        summary = summarize(error)
        raise (RetriableError if summary.is_retriable else PipelineError)(
            f"The replay of {transform.name} failed: {summary.sentence}",
            "After that the same command resumes the replay where it stopped.",
        ) from error


def _rename_topic(topic: Column, live: str, to: str) -> Column:
    return F.when(topic == live, F.lit(to)).otherwise(F.concat(F.lit(f"{to}-"), topic))


def topic_pairs(present: set[str], live: str, to: str) -> list[tuple[str, str]]:
    """Each topic in use with that of the replay."""
    others = sorted(topic for topic in present if f"{to}-{topic}" in present and topic != live)
    pairs = [(live, to), *((topic, f"{to}-{topic}") for topic in others)]
    return [(old, new) for old, new in pairs if old in present and new in present]


def replay_name(stage: str, settings: TransformSettings, to: str, from_: str, logic: str) -> str:
    """The name of the checkpoint and of the sink. Other logic, or another start, is another replay."""
    identity = json.dumps([settings.topics, settings.options, from_, logic], sort_keys=True, default=str)
    return f"{stage}.replay.{to}.{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def read_logic(folder: Path, settings: TransformSettings) -> str:
    file = settings.sql or settings.function.rpartition(":")[0]
    try:
        return f"{settings.function} {(folder / file).read_text(encoding='utf-8')}"
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(
            f"The transform's file {file} cannot be read: {error}.", "Fix its path."
        ) from None


def parse_start(from_: str) -> Position:
    if from_ == "earliest":
        return EARLIEST
    try:
        return Position("time", parse_datetime_ms(from_))
    except ValueError as error:
        raise PipelineError(
            f"The replay cannot start at {from_!r}: {error}.", "Give `earliest` or an ISO time."
        ) from None


def _check_target(spark: SparkSession, cluster: Cluster, to: str, checkpoint: str) -> None:
    """Raises PipelineError if the topic has records and this replay has not started yet."""
    present = cluster.metadata().topics
    if to not in present or _path_exists(spark, checkpoint):
        return
    partitions = list(present[to].partitions)
    if list_offsets(cluster, to, partitions, LATEST) != list_offsets(cluster, to, partitions, EARLIEST):
        raise PipelineError(
            f"The topic {to} has records that this replay did not write: other logic or another program did.",
            "Choose another topic, or delete it first.",
        )


def _path_exists(spark: SparkSession, path: str) -> bool:
    """In the file system that Spark uses for the path, which Hadoop's settings decide if it has no scheme."""
    hadoop = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(hadoop.getFileSystem(spark._jsc.hadoopConfiguration()).exists(hadoop))


def _create_topics(cluster: Cluster, settings: TransformSettings, to: str) -> None:
    """Creates the topics of the replay, with as many partitions as those in use have."""
    present = cluster.metadata().topics
    pairs = [(settings.to, to)]
    if settings.dead_letters:
        pairs.append((settings.dead_letters, f"{to}-{settings.dead_letters}"))
    for live, name in pairs:
        if name in present:
            continue
        count = len(present[live].partitions) if live in present else -1
        try:
            create_topic(cluster, name, partitions=count, replication_factor=-1, configs={})
        except ClusterError as error:
            raise PipelineError(f"{error}.", "Create the topic yourself, and replay again.") from None


def _topic_rows(spark: SparkSession, context: Context, topic: str) -> DataFrame:
    reader = spark.read.format("ottla").options(**context.cluster.options())
    options = {"subscribe": topic, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
    return reader.options(**options).load()
