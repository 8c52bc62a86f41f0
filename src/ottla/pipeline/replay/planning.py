"""Makes the plan of a replay at its first start, from what the cluster and the archives have, and keeps it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.admin.cluster import Cluster
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.topics import list_offsets
from ottla.pipeline.archive.filesystem import credentials
from ottla.pipeline.archive.histories import histories_of
from ottla.pipeline.archive.layout import MANIFESTS
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import files_at
from ottla.pipeline.ingest.reload.reader import read_firsts
from ottla.pipeline.replay.archives import read_archive
from ottla.pipeline.replay.plan import Held, Log, Plan, firsts_since, make_plan
from ottla.pipeline.spark.checkpoint import Checkpoint
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import Offsets
from ottla.pipeline.stage import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipeline.config import StageDeclaration

# beside Spark's own files in the checkpoint
_PLAN = "ottla-replay.json"


class ArchiveStage(NamedTuple):
    """The stage that archives a topic, and where."""

    name: str
    path: str


def archives_of(declared: Iterable["StageDeclaration"], context: Context) -> dict[str, ArchiveStage]:
    """By topic: the first in the file that archives it."""
    found: dict[str, ArchiveStage] = {}
    for stage in declared:
        if stage.group == "sinks" and stage.kind == "archive":
            for topic in stage.settings.topics:
                found.setdefault(topic, ArchiveStage(stage.name, context.path(stage.settings.path)))
    return found


class Planner:
    """`archives` are by topic."""

    def __init__(
        self,
        spark: "SparkSession",
        context: Context,
        cluster: Cluster,
        archives: Mapping[str, ArchiveStage],
    ) -> None:
        self._spark = spark
        self._context = context
        self._cluster = cluster
        self._archives = archives

    def plan(self, checkpoint: str, topics: Sequence[str], position: Position) -> Plan:
        """That of the first start, if a replay with this checkpoint has started before.

        A plan without archives is not kept: the offsets in the checkpoint say the same.
        """
        files = files_at(checkpoint, self._spark)
        if files.exists(_PLAN):
            return Plan.from_json(files.read(_PLAN))
        # A replay that began without archives reads on without them.
        has_begun = Checkpoint(files).last_planned() is not None
        plan = self._make(topics, position, {} if has_begun else self._archives)
        if plan.paths:
            files.create(_PLAN, plan.to_json())
            plan = Plan.from_json(files.read(_PLAN))
        return plan

    def _make(self, topics: Sequence[str], position: Position, archives: Mapping[str, ArchiveStage]) -> Plan:
        present = self._cluster.metadata().topics
        existing = [topic for topic in topics if topic in present]
        topic_ids = Discovery.of_topics(self._context.cluster.options(), topics).topic_ids(existing)
        # Before the archives are read: these must have what the topics have deleted until now.
        logs = {topic: log_of(self._cluster, topic, topic_ids.get(topic), position) for topic in existing}
        time_ms = position.value if position.kind == "time" else None
        held = self._held({topic: archives[topic] for topic in topics if topic in archives}, time_ms)
        for topic in topics:
            if topic not in logs and (topic not in held or not histories_of(held[topic].archived, topic)):
                raise PipelineError(
                    f"The topic {topic}, which the transform reads, does not exist, and no archive has it.",
                    "Fix its `from`.",
                )
        # After: a stage may have archived records that have just come.
        logs = {
            topic: log._replace(end=list_offsets(self._cluster, topic, log.end, LATEST))
            for topic, log in logs.items()
        }
        return make_plan(logs, held, time_ms)

    def _held(self, stages: Mapping[str, ArchiveStage], time_ms: int | None) -> dict[str, Held]:
        archives = {stage: self._read(stage) for stage in {*stages.values()}}
        return {
            topic: Held(stage.path, archived, self._firsts(stage.path, archived, topic, time_ms))
            for topic, stage in stages.items()
            if (archived := archives[stage]) is not None
        }

    def _read(self, stage: ArchiveStage) -> Archived | None:
        """None if the stage has not archived anything yet."""
        checkpoint = Checkpoint.at(self._context.checkpoint(stage.name), self._spark)
        files = files_at(stage.path, self._spark)
        if checkpoint.last_committed() is None and not files.exists(MANIFESTS):
            return None
        return read_archive(files)

    def _firsts(self, path: str, archived: Archived, topic: str, time_ms: int | None) -> Offsets | None:
        if time_ms is None:
            return None
        options = credentials(self._spark, path)
        files = [file for history in histories_of(archived, topic) for file in archived.files_of(history)]
        return firsts_since(files, time_ms, lambda file: read_firsts(path, options, file.path, time_ms))


def log_of(cluster: Cluster, topic: str, topic_id: str | None, position: Position) -> Log:
    partitions = list(cluster.metadata().topics[topic].partitions)
    ends = list_offsets(cluster, topic, partitions, LATEST)
    earliest = list_offsets(cluster, topic, partitions, EARLIEST)
    found = earliest if position == EARLIEST else list_offsets(cluster, topic, partitions, position)
    # -1 means that no record is so late
    start = {part: max(low, earliest[part]) if low >= 0 else ends[part] for part, low in found.items()}
    return Log(topic_id, earliest, start, ends)
