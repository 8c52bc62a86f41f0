"""Topics: list, create, describe, add partitions, delete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.configs import ConfigValue, describe_configs
from ottla.admin.position import EARLIEST, LATEST, Position


class TopicListing(NamedTuple):
    name: str
    partitions: int
    replication_factor: int


class PartitionDescription(NamedTuple):
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    earliest: int
    latest: int


class TopicDescription(NamedTuple):
    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionDescription]
    # Without those that have their default.
    configs: list[ConfigValue]


def list_topics(cluster: Cluster, *, internal: bool = False) -> list[TopicListing]:
    """Sorted by name. Topics whose names begin with __ are internal."""
    lines = []
    for name, topic in sorted(cluster.metadata().topics.items()):
        if internal or not name.startswith("__"):
            replicas = [len(partition.replicas) for partition in topic.partitions.values()]
            lines.append(TopicListing(name, len(topic.partitions), max(replicas, default=0)))
    return lines


def create_topic(
    cluster: Cluster, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> None:
    """-1 for partitions or replication factor means the cluster's default."""
    topic = NewTopic(
        name, num_partitions=partitions, replication_factor=replication_factor, config=dict(configs)
    )
    cluster.result(cluster.admin.create_topics([topic])[name], f"Topic {name} was not created")


def delete_topic(cluster: Cluster, name: str) -> None:
    cluster.result(cluster.admin.delete_topics([name])[name], f"Topic {name} was not deleted")


def create_partitions(cluster: Cluster, name: str, partitions: int) -> None:
    """Increases the number of partitions to `partitions`. It cannot be decreased."""
    futures = cluster.admin.create_partitions([NewPartitions(name, partitions)])
    cluster.result(futures[name], f"Topic {name} got no new partitions")


def topic_exists(cluster: Cluster, name: str) -> bool:
    return name in cluster.metadata().topics


def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicDescription]:
    futures = cluster.admin.describe_topics(TopicCollection(list(names)))
    return [_describe(cluster, cluster.result(futures[name], f"Topic {name}")) for name in names]


def _describe(cluster: Cluster, topic: Any) -> TopicDescription:
    name: str = topic.name
    partitions = sorted(topic.partitions, key=lambda partition: partition.id)
    numbers = [partition.id for partition in partitions]
    earliest = list_offsets(cluster, name, numbers, EARLIEST)
    latest = list_offsets(cluster, name, numbers, LATEST)
    lines = [
        PartitionDescription(
            partition.id,
            partition.leader.id if partition.leader is not None and partition.leader.id >= 0 else None,
            [node.id for node in partition.replicas],
            [node.id for node in partition.isr],
            earliest[partition.id],
            latest[partition.id],
        )
        for partition in partitions
    ]
    configs = [line for line in describe_configs(cluster, "topic", name) if not line.is_default]
    topic_id = str(topic.topic_id).replace("+", "-").replace("/", "_")
    return TopicDescription(name, topic_id, topic.is_internal, lines, configs)


def list_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], position: Position
) -> dict[int, int]:
    """The offset of a position (earliest, latest or a time) in each partition; -1 if no record is so late."""
    request = {TopicPartition(topic, partition): _spec(position) for partition in partitions}
    if not request:
        raise ClusterError(f"Topic {topic} has no partitions")
    return {
        partition.partition: cluster.result(future, f"Offsets of {topic}-{partition.partition}").offset
        for partition, future in cluster.admin.list_offsets(request).items()
    }


def _spec(position: Position) -> Any:
    specs: Any = OffsetSpec
    if position.kind == "time":
        return specs.for_timestamp(position.value)
    return specs.earliest() if position.kind == "earliest" else specs.latest()
