"""Applies the records of consumer groups to the groups of a shard."""

from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.consumer.subscriptions import ResolvedRegex
from ottla.core.groups.state import GroupsState
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupValue,
)

ConsumerKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)


def replay(state: GroupsState, key: ConsumerKey, value: GroupValue | None) -> None:
    """In a compacted log the records of a group come in any order, and tombstones may be for unknown keys."""
    group = state.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return  # the group was deleted, or has become a classic group
        group = state.groups[key.group_id] = ConsumerGroup(key.group_id, state)
    if isinstance(key, ConsumerGroupMetadataKey) and value is None:
        del state.groups[key.group_id]
        return
    _apply(group, key, value)


def _apply(group: ConsumerGroup, key: ConsumerKey, value: GroupValue | None) -> None:
    match value:
        case None:
            _apply_tombstone(group, key)
        case ConsumerGroupMetadataValue():
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ConsumerGroupTargetAssignmentMetadataValue():
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp
        case ConsumerGroupMemberMetadataValue():
            assert isinstance(key, ConsumerGroupMemberMetadataKey)
            group.put_member(_member(group, key.member_id).with_metadata(value))
        case ConsumerGroupCurrentMemberAssignmentValue():
            assert isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
            group.put_member(_member(group, key.member_id).with_current_assignment(value))
        case ConsumerGroupTargetAssignmentMemberValue():
            assert isinstance(key, ConsumerGroupTargetAssignmentMemberKey)
            topics = value.topic_partitions
            group.put_target(key.member_id, {topic.topic_id: frozenset(topic.partitions) for topic in topics})
        case ConsumerGroupRegularExpressionValue():
            assert isinstance(key, ConsumerGroupRegularExpressionKey)
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            group.resolve(key.regular_expression, resolved)


def _apply_tombstone(group: ConsumerGroup, key: ConsumerKey) -> None:
    match key:
        case ConsumerGroupMemberMetadataKey():
            group.remove_member(key.member_id)
        case ConsumerGroupCurrentMemberAssignmentKey():
            member = group.members.get(key.member_id)
            if member is not None:
                group.put_member(member.without_current_assignment())
        case ConsumerGroupTargetAssignmentMemberKey():
            group.put_target(key.member_id, None)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.assignment_epoch = -1
            group.assignment_timestamp_ms = 0
        case ConsumerGroupRegularExpressionKey():
            group.resolve(key.regular_expression, None)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
