"""Moves the leader of a partition, and so the coordinator of a group, to a node that the test chooses."""

from collections.abc import Sequence

from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition

from ottla.admin.cluster import Cluster, ClusterError, UnknownTopicError
from ottla.admin.reassignments import list_ongoing, reassign
from ottla.admin.topics import PartitionDescription, describe_topics
from ottla.broker.coordinators.key_hash import partition_for
from ottla.model.ids import TopicPartition
from ottla.testing.helpers import wait_until

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def move_leader(cluster: Cluster, partition: TopicPartition, node: int, timeout_s: float) -> None:
    """Makes the node the first replica, and elects it. Raises TimeoutError and UnknownTopicError."""
    is_first, state = False, ""

    def is_moved() -> bool:
        nonlocal is_first, state
        try:
            found = _describe(cluster, partition)
            state = str(found)
            if not is_first:
                _make_first(cluster, partition, found.replicas, node)
                is_first = True
            if found.leader == node:
                return True
            if partition not in list_ongoing(cluster) and node in found.isr:
                _elect(cluster, partition)
        except ClusterError as error:
            if not is_first and isinstance(error, UnknownTopicError):
                raise
            # The nodes have not all learned of a change, or no election was possible yet.
            state = str(error)
        return False

    if not wait_until(is_moved, timeout_s):
        raise TimeoutError(f"node {node} does not lead {partition} after {timeout_s:g} s: {state}")


def _make_first(cluster: Cluster, partition: TopicPartition, replicas: Sequence[int], node: int) -> None:
    others = [replica for replica in replicas if replica != node]
    wanted = (node, *others[: len(replicas) - 1])
    if wanted != tuple(replicas):
        reassign(cluster, {partition: wanted})


def coordinator_partition(cluster: Cluster, key: str, topic: str) -> TopicPartition:
    """The partition whose leader coordinates a group or a transactional id. Raises ClusterError if there is none."""
    return TopicPartition(topic, partition_for(key, len(cluster.partitions_of(topic))))


def _describe(cluster: Cluster, partition: TopicPartition) -> PartitionDescription:
    (topic,) = describe_topics(cluster, [partition.topic])
    return topic.partitions[partition.partition]


def _elect(cluster: Cluster, partition: TopicPartition) -> None:
    asked = ClientPartition(partition.topic, partition.partition)
    elected = cluster.admin.elect_leaders(ElectionType.PREFERRED, [asked])
    cluster.result(elected, f"Election of a leader of {partition}")
