"""The topics of a pipeline on the real cluster: made where they are missing, compared where they are there."""

from collections.abc import Iterator, Mapping

from ottla.admin.cluster import AddressError, ClusterError
from ottla.admin.cluster import Cluster as Connection
from ottla.admin.configs import describe_configs
from ottla.admin.position import LATEST
from ottla.admin.topics import create_topic, list_offsets
from ottla.pipeline.config import TopicSettings, as_text
from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.stage import ClusterSettings, Problem


def connect(cluster: ClusterSettings) -> Connection:
    """Raises PassingError where no broker answers: it may come up."""
    try:
        connection = Connection(cluster.bootstrap, cluster.properties)
        connection.metadata()
    except AddressError:
        raise PipelineError(
            f"`bootstrap` in [cluster] is {cluster.bootstrap!r}.", "Give HOST:PORT, as in 127.0.0.1:9092."
        ) from None
    except ClusterError:
        raise PassingError(
            f"No broker answers at {cluster.bootstrap}.", "Start one, or mend `bootstrap` in [cluster]."
        ) from None
    return connection


def make_topics(connection: Connection, topics: Mapping[str, TopicSettings]) -> list[str]:
    """Makes those that are missing, and returns their names."""
    present = connection.metadata().topics
    missing = [name for name in topics if name not in present]
    for name in missing:
        settings = topics[name]
        try:
            create_topic(
                connection,
                name,
                partitions=settings.partitions,
                replication_factor=settings.replication_factor,
                configs={key: as_text(value) for key, value in settings.configs.items()},
            )
        except ClusterError as error:
            raise PipelineError(f"{error}.", f"Mend [topics.{name}].") from None
    return missing


def topic_problems(connection: Connection, topics: Mapping[str, TopicSettings]) -> Iterator[Problem]:
    """Topics that are there, but not as the file says. They are left as they are, so these are warnings."""
    present = connection.metadata().topics
    for name, settings in topics.items():
        if name not in present:
            continue
        where = f"[topics.{name}]"
        count = len(present[name].partitions)
        if settings.partitions not in (-1, count):
            yield Problem(
                where,
                f"The topic has {count} partitions, not {settings.partitions}.",
                f"It stays as it is. Grow it with `ottla topics partitions {name} N`, or change the file.",
                is_warning=True,
            )
        configs = {line.name: line.value for line in describe_configs(connection, "topic", name)}
        for key, value in settings.configs.items():
            if configs.get(key) != as_text(value):
                yield Problem(
                    where,
                    f"The topic's {key} is {configs.get(key)}, not {as_text(value)}.",
                    f"It stays as it is. Change it with `ottla topics alter {name} --config {key}={as_text(value)}`.",
                    is_warning=True,
                )


def end_offsets(connection: Connection, topics: set[str]) -> dict[str, dict[int, int]]:
    """The latest offset of each partition of each topic that exists."""
    present = connection.metadata().topics
    return {
        topic: list_offsets(connection, topic, list(present[topic].partitions), LATEST)
        for topic in topics
        if topic in present
    }
