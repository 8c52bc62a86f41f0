"""Consumer groups: list, describe, delete."""

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.group_offsets import committed_offsets, offsets_at, partition_leaders
from ottla.admin.nodes import Node
from ottla.admin.position import LATEST
from ottla.model.ids import TopicPartition

DEAD = "Dead"
STATES = {
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.DEAD: DEAD,
    # librdkafka has no name for Assigning and Reconciling (KIP-848). A broker that assigns within the heartbeat
    # never reports Assigning.
    ConsumerGroupState.UNKNOWN: "Reconciling",
}
TYPES = {
    ConsumerGroupType.CLASSIC: "classic",
    ConsumerGroupType.CONSUMER: "consumer",
    # A broker older than KIP-848, which knows classic groups only.
    ConsumerGroupType.UNKNOWN: "classic",
}
_ERRORS = {
    KafkaError.GROUP_ID_NOT_FOUND: "there is no such group. See: ottla groups list",
    KafkaError.NON_EMPTY_GROUP: "it has members. Stop its consumers first. See: ottla groups members",
}


class GroupListing(NamedTuple):
    """`members` is None if librdkafka cannot decode the group: its contents are up to the clients."""

    group: str
    type: str
    state: str
    members: int | None


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    # The target assignment of KIP-848; None for classic groups.
    target: list[TopicPartition] | None


class PartitionLag(NamedTuple):
    topic: str
    partition: int
    # None: nothing is committed, or the partition does not exist or has no leader.
    committed: int | None
    log_end: int | None
    lag: int | None
    # The member that the partition is assigned to, if any.
    owner: str | None
    client_id: str | None
    host: str | None


class GroupDescription(NamedTuple):
    group: str
    type: str
    state: str
    coordinator: Node
    assignor: str
    members: list[MemberDescription]


def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """Sorted by name. No `states` or no `types` means all of them."""
    listing: Any = cluster.result(cluster.admin.list_consumer_groups(), "Groups cannot be listed")
    if listing.errors:
        raise cluster.error("Some brokers did not list their groups", listing.errors[0].args[0])
    chosen = {
        item.group_id: item
        for item in sorted(listing.valid, key=lambda item: item.group_id)
        if (not states or STATES[item.state] in states) and (not types or TYPES[item.type] in types)
    }
    unreadable: set[str] = set()
    found = _describe(cluster, list(chosen), unreadable)
    lines = []
    for name, item in chosen.items():
        if name in found:
            lines.append(GroupListing(name, found[name].type, found[name].state, len(found[name].members)))
        elif name in unreadable:
            lines.append(GroupListing(name, TYPES[item.type], STATES[item.state], None))
    return lines


def describe_groups(cluster: Cluster, names: Sequence[str]) -> list[GroupDescription]:
    """Raises ClusterError if one of them does not exist."""
    found = _describe(cluster, names)
    missing = [name for name in names if name not in found]
    if missing:
        raise ClusterError(f"Group {missing[0]}: {_ERRORS[KafkaError.GROUP_ID_NOT_FOUND]}")
    return list(found.values())


def find_group(cluster: Cluster, name: str) -> GroupDescription | None:
    return _describe(cluster, [name]).get(name)


def group_lag(cluster: Cluster, group: GroupDescription) -> list[PartitionLag]:
    """Each partition that has a committed offset or an owner, sorted."""
    committed = committed_offsets(cluster, group.group)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    leaders = partition_leaders(cluster) if partitions else {}
    ends = offsets_at(cluster, [p for p in partitions if leaders.get(p, -1) >= 0], LATEST)
    return [_offset_line(p, committed.get(p), ends.get(p), owners.get(p)) for p in partitions]


def delete_group(cluster: Cluster, name: str) -> None:
    (future,) = cluster.admin.delete_consumer_groups([name]).values()
    what = f"Group {name} was not deleted"
    try:
        cluster.result(future, what)
    except ClusterError:
        if (code := _code(future)) in _ERRORS:
            raise ClusterError(f"{what}: {_ERRORS[code]}") from None
        raise


def _offset_line(
    partition: TopicPartition, committed: int | None, log_end: int | None, owner: MemberDescription | None
) -> PartitionLag:
    return PartitionLag(
        partition.topic,
        partition.partition,
        committed,
        log_end,
        None if committed is None or log_end is None else log_end - committed,
        owner and owner.member_id,
        owner and owner.client_id,
        owner and owner.host,
    )


def _describe(
    cluster: Cluster, names: Sequence[str], unreadable: set[str] | None = None
) -> dict[str, GroupDescription]:
    """The groups that exist. For others brokers respond with the state Dead or with GROUP_ID_NOT_FOUND.

    Adds groups that cannot be described to `unreadable`; without it, the first of them is an error.
    """
    if not names:
        return {}
    found = {}
    for name, future in cluster.admin.describe_consumer_groups(list(dict.fromkeys(names))).items():
        try:
            group = cluster.result(future, f"Group {name}")
        except ClusterError:
            if _code(future) == KafkaError.GROUP_ID_NOT_FOUND:
                continue
            if unreadable is None:
                raise
            unreadable.add(name)
            continue
        if STATES[group.state] != DEAD:
            found[name] = _description(group)
    return found


def _code(future: "Future[Any]") -> int | None:
    """The error code of a failed call."""
    error = future.exception() if future.done() else None
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _description(group: Any) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        TYPES[group.type],
        STATES[group.state],
        Node(group.coordinator.id, group.coordinator.host, group.coordinator.port),
        group.partition_assignor,
        sorted(_member(member) for member in group.members),
    )


def _member(member: Any) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        # Java writes a slash before an address that has no host name.
        member.host.removeprefix("/"),
        _partitions(member.assignment),
        None if member.target_assignment is None else _partitions(member.target_assignment),
    )


def _partitions(assignment: Any) -> list[TopicPartition]:
    return sorted(TopicPartition(item.topic, item.partition) for item in assignment.topic_partitions)
