"""Reassignments of partitions (KIP-455): the state of the cluster, start, list, cancel, progress."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla.admin.brokers import FENCED, BrokerListing, list_brokers
from ottla.admin.cluster import Cluster, ClusterError, UnreachableError
from ottla.admin.configs import describe_configs
from ottla.admin.nodes import Node, call, call_any, check_error
from ottla.admin.reassignment_plan import ClusterState, OngoingMove, PartitionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

_TIMEOUT = timedelta(seconds=30)
# Kafka's controllers refuse more partitions in a request.
_PARTITIONS_PER_REQUEST = 5000

ReplicaSizes = dict[TopicPartition, dict[int, int]]  # bytes by broker


class Progress(NamedTuple):
    """`moving` is the number of partitions that are not complete."""

    moving: int
    copied_bytes: int
    total_bytes: int


def active_nodes(cluster: Cluster) -> list[Node]:
    return [broker.node for broker in list_brokers(cluster, None) if broker.state != FENCED]


def read_state(cluster: Cluster) -> ClusterState:
    brokers = list_brokers(cluster, None)
    active = [broker for broker in brokers if broker.state != FENCED]
    sizes = replica_sizes([broker.node for broker in active])
    partitions = {}
    for topic, described in cluster.metadata().topics.items():
        for index, partition in described.partitions.items():
            key = TopicPartition(topic, index)
            own = sizes.get(key, {})
            partitions[key] = PartitionState(
                tuple(partition.replicas),
                tuple(partition.isrs),
                None if partition.leader < 0 else partition.leader,
                own.get(partition.leader, max(own.values(), default=0)),
            )
    return ClusterState(
        {broker.id: broker.rack for broker in active},
        _inactive(brokers, partitions),
        partitions,
        list_ongoing(cluster),
        {broker.id: broker.host.lower() for broker in active},
    )


def _inactive(
    brokers: Iterable[BrokerListing], partitions: Mapping[TopicPartition, PartitionState]
) -> frozenset[int]:
    fenced = {broker.id for broker in brokers if broker.state == FENCED}
    used = {replica for partition in partitions.values() for replica in partition.replicas}
    return frozenset(fenced | (used - {broker.id for broker in brokers}))


def replica_sizes(nodes: Iterable[Node]) -> ReplicaSizes:
    """The bytes of each replica on the given brokers. A replica that is moved to another directory counts once."""
    sizes: ReplicaSizes = {}
    for node in nodes:
        what = f"The disks of broker {node} cannot be described"
        response = call(node, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, what)
        if response.error_code is not ErrorCode.none:
            raise ClusterError(f"{what}: {response.error_code.name.upper()}")
        for result in response.results:
            for topic in result.topics:
                for partition in topic.partitions:
                    if not partition.is_future_key:
                        key = TopicPartition(topic.name, int(partition.partition_index))
                        sizes.setdefault(key, {})[node.id] = int(partition.partition_size)
    return sizes


def list_ongoing(cluster: Cluster) -> dict[TopicPartition, OngoingMove]:
    what = "Reassignments cannot be listed"
    request = ListPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=None)
    response = call_any(cluster, request, ListPartitionReassignmentsResponse, what)
    check_error(response, what)
    return {
        TopicPartition(topic.name, int(partition.partition_index)): OngoingMove(
            tuple(map(int, partition.replicas)),
            tuple(map(int, partition.adding_replicas)),
            tuple(map(int, partition.removing_replicas)),
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def min_insync_replicas(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    return {
        topic: int(line.value or 1)
        for topic in topics
        for line in describe_configs(cluster, "topic", topic)
        if line.name == "min.insync.replicas"
    }


def reassign(cluster: Cluster, plan: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    """Starts to move the partitions. Raises ClusterError that names those that were refused."""
    _alter(cluster, plan, "The reassignment was not started")


def cancel(cluster: Cluster, partitions: Collection[TopicPartition]) -> None:
    """Removes the replicas that were being added. A move that was completed meanwhile is no error."""
    _alter(
        cluster,
        dict.fromkeys(partitions),
        "The reassignment was not cancelled",
        allowed=(ErrorCode.no_reassignment_in_progress,),
    )


def _alter(
    cluster: Cluster,
    plan: Mapping[TopicPartition, tuple[int, ...] | None],
    what: str,
    allowed: Collection[ErrorCode] = (),
) -> None:
    errors: list[str] = []
    partitions = sorted(plan)
    for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        part = {
            partition: plan[partition] for partition in partitions[start : start + _PARTITIONS_PER_REQUEST]
        }
        request = AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=_topics(part))
        response = call_any(cluster, request, AlterPartitionReassignmentsResponse, what)
        check_error(response, what)
        errors += [
            f"{topic.name}-{partition.partition_index}: {_reason(partition)}"
            for topic in response.responses
            for partition in topic.partitions
            if partition.error_code is not ErrorCode.none and partition.error_code not in allowed
        ]
    if errors:
        raise ClusterError("\n  ".join([f"{what} for {len(errors)} of {len(plan)} partitions:", *errors]))


def _topics(plan: Mapping[TopicPartition, tuple[int, ...] | None]) -> tuple[ReassignableTopic, ...]:
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in plan.items():
        ids = None if replicas is None else tuple(map(BrokerId, replicas))
        by_topic.setdefault(topic, []).append(ReassignablePartition(partition_index=i32(index), replicas=ids))
    return tuple(
        ReassignableTopic(name=TopicName(topic), partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )


def _reason(partition: Any) -> str:
    return f"{partition.error_message or 'no reason given'} ({partition.error_code.name.upper()})"


def read_progress(
    cluster: Cluster,
    nodes: Iterable[Node],
    added: Mapping[TopicPartition, tuple[int, ...]],
    sizes: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
) -> Progress:
    """How far the `partitions` are. `added` are the brokers that copy them, `nodes` those that can be asked.

    `sizes` are those of the partitions when the moves began. What is produced meanwhile is not counted.
    """
    moving = list_ongoing(cluster).keys() & set(partitions)
    targets = {broker for partition in moving for broker in added.get(partition, ())}
    now: ReplicaSizes = {}
    for node in nodes:
        if node.id in targets:
            with suppress(UnreachableError):  # it is down: its replicas make no progress
                for partition, by_broker in replica_sizes([node]).items():
                    now.setdefault(partition, {}).update(by_broker)
    total = copied = 0
    for partition, brokers in added.items():
        size = sizes[partition]
        total += size * len(brokers)
        for broker in brokers:
            copied += min(now.get(partition, {}).get(broker, 0), size) if partition in moving else size
    return Progress(len(moving), copied, total)
