"""Resets the committed offsets of a group: reads the offsets that a plan needs, and executes the plan."""

from collections.abc import Collection, Sequence

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.group_offsets import (
    TopicScope,
    alter_offsets,
    committed_offsets,
    offsets_at,
    partition_leaders,
)
from ottla.admin.groups import find_group
from ottla.admin.position import EARLIEST, LATEST, Position
from ottla.admin.reset_plan import (
    PartitionOffsets,
    PlannedReset,
    ResetError,
    Target,
    ToListedOffsets,
    ToTime,
    plan_reset,
)
from ottla.model.ids import TopicPartition


def plan_group_reset(
    cluster: Cluster, group: str, target: Target, scopes: Collection[TopicScope]
) -> list[PlannedReset]:
    """Without `scopes`: every partition with a committed offset, or those that the target lists.

    The group need not exist: its first members will start at these offsets. Raises ClusterError if it has members,
    which would continue from their own positions and overwrite the offsets.
    """
    found = find_group(cluster, group)
    if found is not None and found.members:
        raise ClusterError(
            f"Group {group} has members ({len(found.members)}, {found.state}): its offsets can only be reset while "
            f"it has none. Stop its consumers first. See: ottla groups members {group}"
        )
    committed = committed_offsets(cluster, group)
    leaders = partition_leaders(cluster)
    if isinstance(target, ToListedOffsets):
        partitions = sorted(target.offsets)
    elif scopes:
        partitions = _in_scope(scopes, leaders)
    else:
        partitions = sorted(committed)
        if not partitions:
            raise ClusterError(f"Group {group} has no committed offsets: set the topics with --topic NAME")
    _check(partitions, leaders)
    earliest = offsets_at(cluster, partitions, EARLIEST)
    latest = offsets_at(cluster, partitions, LATEST)
    at_time: dict[TopicPartition, int] = {}
    if isinstance(target, ToTime):
        found_offsets = offsets_at(cluster, partitions, Position("time", target.time_ms))
        at_time = {partition: offset for partition, offset in found_offsets.items() if offset >= 0}
    known = {
        p: PartitionOffsets(earliest[p], latest[p], committed.get(p), at_time.get(p)) for p in partitions
    }
    try:
        return plan_reset(target, known)
    except ResetError as error:
        raise ClusterError(f"Group {group}: {error}") from None


def execute_reset(cluster: Cluster, group: str, plan: Sequence[PlannedReset]) -> None:
    alter_offsets(cluster, group, {line.topic_partition: line.new_offset for line in plan})


def _in_scope(scopes: Collection[TopicScope], existing: Collection[TopicPartition]) -> list[TopicPartition]:
    chosen = {partition for partition in existing if any(scope.covers(partition) for scope in scopes)}
    for scope in scopes:
        # Also partitions that do not exist, so that `_check` reports them.
        named = [TopicPartition(scope.topic, number) for number in scope.partitions]
        chosen.update(named or [TopicPartition(scope.topic, 0)])
    return sorted(chosen)


def _check(partitions: Collection[TopicPartition], leaders: dict[TopicPartition, int]) -> None:
    topics = {partition.topic for partition in leaders}
    for partition in partitions:
        if partition.topic not in topics:
            raise ClusterError(f"Topic {partition.topic}: no such topic. See: ottla topics list")
        if partition not in leaders:
            raise ClusterError(
                f"Topic {partition.topic} has no partition {partition.partition}. "
                f"See: ottla topics describe {partition.topic}"
            )
        if leaders[partition] < 0:
            raise ClusterError(
                f"{partition} has no leader, so its offsets are not known. Try again when it has one"
            )
