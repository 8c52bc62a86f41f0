"""The committed offsets of a group, and the offsets of partitions to compare them with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as NewOffset

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.position import Position
from ottla.admin.topics import list_offsets
from ottla.model.ids import TopicPartition


class TopicScope(NamedTuple):
    """A topic, or some of its partitions. No partitions means all."""

    topic: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        return ":".join(filter(None, (self.topic, ",".join(map(str, self.partitions)))))

    def covers(self, partition: TopicPartition) -> bool:
        return partition.topic == self.topic and (
            not self.partitions or partition.partition in self.partitions
        )


def parse_scope(text: str) -> TopicScope:
    """Parses NAME or NAME:0,1,2. Raises ValueError otherwise."""
    topic, separator, numbers = text.partition(":")
    partitions = numbers.split(",") if separator else []
    if not topic or not all(number.isascii() and number.isdigit() for number in partitions):
        raise ValueError(f"{text!r}: expected NAME, or NAME:PARTITIONS with numbers, e.g. orders:0,1")
    return TopicScope(topic, tuple(sorted({int(number) for number in partitions})))


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Empty for a group that does not exist, as brokers respond."""
    (future,) = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    what = f"Offsets of group {group}"
    offsets = {}
    for line in cluster.result(future, what).topic_partitions or []:
        if line.error is not None:
            raise cluster.error(f"{what}, {line.topic}-{line.partition}", line.error)
        if line.offset >= 0:
            offsets[TopicPartition(line.topic, line.partition)] = line.offset
    return offsets


def offsets_at(
    cluster: Cluster, partitions: Iterable[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """The offset of a position in each partition; -1 if no record is so late."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(number)
    return {
        TopicPartition(topic, number): offset
        for topic, numbers in by_topic.items()
        for number, offset in list_offsets(cluster, topic, numbers, position).items()
    }


def partition_leaders(cluster: Cluster) -> dict[TopicPartition, int]:
    """The leader of every partition of the cluster; -1 if it has none, and then its log end is not known."""
    return {
        TopicPartition(name, number): partition.leader
        for name, topic in cluster.metadata().topics.items()
        for number, partition in topic.partitions.items()
    }


def alter_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits offsets for a group that has no members. Raises ClusterError for the first that was rejected."""
    new_offsets = [NewOffset(topic, number, offset) for (topic, number), offset in offsets.items()]
    (future,) = cluster.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, new_offsets)]
    ).values()
    what = f"Offsets of group {group} were not changed"
    for line in cluster.result(future, what).topic_partitions or []:
        if line.error is not None and line.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            raise ClusterError(f"{what}: a member has joined. Stop the group's consumers and try again")
        if line.error is not None:
            raise cluster.error(f"Offset of group {group} for {line.topic}-{line.partition}", line.error)
