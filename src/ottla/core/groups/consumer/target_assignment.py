"""The target assignment of a group: the partitions of each member after reconciliation, computed by an assignor."""

from uuid import UUID

from ottla.core.groups.assignors import ASSIGNORS, GroupSpec, MemberSpec
from ottla.core.groups.consumer.group import ConsumerGroup, Target
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import ClusterTopics, GroupsState, TopicInfo
from ottla.protocol.group_records.records import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
)


def assignor_name(group: ConsumerGroup, settings: GroupSettings) -> str:
    """The assignor that most members ask for, else the first configured one."""
    return max(settings.consumer_assignors, key=lambda name: group.assignors.get(name, 0))


def write_target(group: ConsumerGroup, state: GroupsState, decision: GroupDecision, now_ms: int) -> None:
    """Computes the target for the group's epoch, and writes the members whose target differs from the last."""
    topics: dict[UUID, TopicInfo] = {}
    spec = _group_spec(group, state.topics, topics)
    targets = ASSIGNORS[assignor_name(group, state.settings)].assign(spec, topics)
    for member_id in spec.members:
        target = targets.get(member_id, {})
        if target != group.targets.get(member_id):
            write_member_target(decision, group.group_id, member_id, target)
    decision.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.group_epoch, assignment_timestamp=now_ms
        ),
    )


def write_member_target(
    decision: GroupDecision, group_id: str, member_id: str, target: Target | None
) -> None:
    value = None
    if target is not None:
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=tuple(
                TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(partitions)))
                for topic_id, partitions in target.items()
            )
        )
    decision.write(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def _group_spec(group: ConsumerGroup, cluster: ClusterTopics, topics: dict[UUID, TopicInfo]) -> GroupSpec:
    """Looks up each distinct subscription once, because most members have the same.

    Members are sorted by id: compaction of the log does not keep the order in which they joined.
    """
    ids_of: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
    members = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        subscription = (member.metadata.subscribed_topic_names, member.regex)
        topic_ids = ids_of.get(subscription)
        if topic_ids is None:
            found = [cluster.find(name) for name in sorted(group.subscriptions.names_of(member))]
            by_id = {topic.topic_id: topic for topic in found if topic is not None}
            topics.update(by_id)
            topic_ids = ids_of[subscription] = frozenset(by_id)
        members[member_id] = MemberSpec(
            member_id, member.instance_id, member.metadata.rack_id, topic_ids, group.target(member_id)
        )
    return GroupSpec(members, is_homogeneous=len(set(ids_of.values())) <= 1)
