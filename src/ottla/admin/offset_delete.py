"""Deletes committed offsets of a group (OffsetDelete, KIP-496)."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla.admin.cluster import Cluster, ClusterError
from ottla.admin.group_offsets import TopicScope, committed_offsets
from ottla.admin.groups import describe_groups
from ottla.admin.nodes import call
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

_ERRORS = {
    ErrorCode.group_subscribed_to_topic: "a member of the group is subscribed to the topic. Stop it first",
    ErrorCode.non_empty_group: "the group has members. Stop its consumers first",
    ErrorCode.unknown_topic_or_partition: "no such topic or partition. See: ottla topics list",
    ErrorCode.group_id_not_found: "there is no such group. See: ottla groups list",
}


class DeletedOffset(NamedTuple):
    topic: str
    partition: int
    # Why the offset was not deleted; None if it was.
    error: str | None


def delete_offsets(cluster: Cluster, group: str, scopes: Collection[TopicScope]) -> list[DeletedOffset]:
    """Sorted. Raises ClusterError if the group does not exist, or has no committed offset in one of the scopes."""
    (described,) = describe_groups(cluster, [group])
    committed = committed_offsets(cluster, group)
    for scope in scopes:
        if not any(scope.covers(partition) for partition in committed):
            raise ClusterError(
                f"Group {group} has no committed offset of {scope}. See: ottla groups offsets {group}"
            )
    chosen = [partition for partition in committed if any(scope.covers(partition) for scope in scopes)]
    what = f"Offsets of group {group} were not deleted"
    response = call(described.coordinator, _request(group, chosen), OffsetDeleteResponse, what)
    if response.error_code is not ErrorCode.none:
        raise ClusterError(f"{what}: {_reason(response.error_code)}")
    return sorted(
        DeletedOffset(
            topic.name,
            line.partition_index,
            None if line.error_code is ErrorCode.none else _reason(line.error_code),
        )
        for topic in response.topics
        for line in topic.partitions
    )


def _request(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(OffsetDeleteRequestPartition(partition_index=i32(number)))
    topics = (
        OffsetDeleteRequestTopic(name=TopicName(topic), partitions=tuple(numbers))
        for topic, numbers in by_topic.items()
    )
    return OffsetDeleteRequest(group_id=GroupId(group), topics=tuple(topics))


def _reason(code: ErrorCode) -> str:
    return _ERRORS.get(code, f"the coordinator responded {code.name.upper()}. Try again")
