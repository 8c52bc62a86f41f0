"""The topics of a pipeline on its cluster: creates those that are missing, compares the others with the file."""

from collections.abc import Iterable, Iterator, Mapping

from ottla.admin.cluster import AddressError, Cluster, ClusterError
from ottla.admin.configs import describe_configs
from ottla.admin.position import LATEST
from ottla.admin.topics import create_topic, list_offsets
from ottla.pipeline.config import TopicSettings, as_text
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.stage import ClusterSettings, Context, Finding


def connect(settings: ClusterSettings) -> Cluster:
    """Raises RetriableError if no broker responds: it may be starting."""
    try:
        cluster = Cluster(settings.bootstrap, settings.properties)
        cluster.metadata()
    except AddressError:
        raise PipelineError(
            f"`bootstrap` in [cluster] is {settings.bootstrap!r}.", "Give HOST:PORT, as in 127.0.0.1:9092."
        ) from None
    except ClusterError:
        raise RetriableError(
            f"No broker responds at {settings.bootstrap}.", "Start one, or fix `bootstrap` in [cluster]."
        ) from None
    return cluster


def create_missing_topics(cluster: Cluster, topics: Mapping[str, TopicSettings]) -> list[str]:
    """Returns the names of the topics that it created."""
    present = cluster.metadata().topics
    missing = [name for name in topics if name not in present]
    for name in missing:
        settings = topics[name]
        try:
            create_topic(
                cluster,
                name,
                partitions=settings.partitions,
                replication_factor=settings.replication_factor,
                configs={key: as_text(value) for key, value in settings.configs.items()},
            )
        except ClusterError as error:
            raise PipelineError(f"{error}.", f"Fix [topics.{name}].") from None
    return missing


def missing_topics(
    wanted: Iterable[str], present: Iterable[str], context: Context, where: str
) -> Iterator[Finding]:
    """The topics that a stage needs, and that neither exist nor are created by the pipeline.

    `where` is the stage's table in the file.
    """
    for topic in sorted({*wanted} - {*present} - context.topics):
        yield Finding(
            where,
            f"The topic {topic} does not exist.",
            f"Create it, or add [topics.{topic}] to the pipeline.",
        )


def check_topics(cluster: Cluster, topics: Mapping[str, TopicSettings]) -> Iterator[Finding]:
    """Warns of topics that exist and differ from the file. The pipeline leaves such topics as they are."""
    present = cluster.metadata().topics
    for name, settings in topics.items():
        if name not in present:
            continue
        where = f"[topics.{name}]"
        count = len(present[name].partitions)
        if settings.partitions not in (-1, count):
            yield Finding(
                where,
                f"The topic has {count} partitions, not {settings.partitions}.",
                f"It stays as it is. Grow it with `ottla topics partitions {name} N`, or change the file.",
                is_warning=True,
            )
        configs = {line.name: line.value for line in describe_configs(cluster, "topic", name)}
        for key, value in settings.configs.items():
            if configs.get(key) != as_text(value):
                yield Finding(
                    where,
                    f"The topic's {key} is {configs.get(key)}, not {as_text(value)}.",
                    f"It stays as it is. Change it with `ottla topics alter {name} --config {key}={as_text(value)}`.",
                    is_warning=True,
                )


def end_offsets(cluster: Cluster, topics: set[str]) -> dict[str, dict[int, int]]:
    """The log end offset of each partition of those topics that exist."""
    present = cluster.metadata().topics
    return {
        topic: list_offsets(cluster, topic, list(present[topic].partitions), LATEST)
        for topic in topics
        if topic in present
    }
