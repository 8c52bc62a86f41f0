"""ConsumerGroupDescribe: a consumer group as administrators see it."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.core.groups.commands import (
    Client,
    ConsumerAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.consumer.target_assignment import assignor_name
from ottla.core.groups.state import ClusterTopics, GroupsState

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def describe_group(group: ConsumerGroup, state: GroupsState) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor_name(group, state.settings),
        members=tuple(_describe_member(group, member, state.topics) for member in group.members.values()),
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerGroupMember, topics: ClusterTopics
) -> DescribedConsumer:
    metadata = member.metadata
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.member_epoch,
        client=Client(metadata.client_id, metadata.client_host),
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        assignment=_with_names(_held_partitions(member), topics),
        target_assignment=_with_names(group.target(member.member_id), topics),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _held_partitions(member: ConsumerGroupMember) -> dict[UUID, list[int]]:
    """The assigned partitions, and those that the member has not revoked yet."""
    held: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, partitions in part.items():
            held.setdefault(topic_id, []).extend(partitions)
    return held


def _with_names(
    assignment: Mapping[UUID, Iterable[int]], topics: ClusterTopics
) -> tuple[ConsumerAssignment, ...]:
    """Without deleted topics, which have no name."""
    named = []
    for topic_id, partitions in assignment.items():
        topic = topics.find_by_id(topic_id)
        if topic is not None:
            named.append(ConsumerAssignment(topic_id, topic.name, tuple(sorted(partitions))))
    return tuple(named)
