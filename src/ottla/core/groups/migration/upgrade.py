"""Converts a classic group to a consumer group when the first member with the consumer protocol joins.

The classic members keep their partitions, as assignment and as target. Their next heartbeat asks them to rejoin; from
then on `classic_members` serves them.
"""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from kio.static.primitive import i32, i64

from ottla.core.groups.classic.errors import rebalance_in_progress
from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.classic.member import NO_ASSIGNMENT, ClassicMember
from ottla.core.groups.classic.timers import join_key, session_key, sync_key
from ottla.core.groups.commands import ConsumerGroupHeartbeat, JoinGroupResponse
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import Assigned, ConsumerGroupMember, MemberState
from ottla.core.groups.consumer.rebalance import ConsumerRebalancer
from ottla.core.groups.consumer.target_assignment import write_member_target
from ottla.core.groups.consumer_protocol import (
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
)
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

# The user data in assignments of these assignors is not needed. Kafka rejects the upgrade of a group with user data,
# but librdkafka's sticky assignor writes some, so such a group could be upgraded only in its first generation.
_DEFAULT_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


Partitions = Mapping[UUID, frozenset[int]]


class UpgradedMember(NamedTuple):
    """A classic member, converted to a member of the consumer group."""

    member: ConsumerGroupMember
    target: Partitions


def upgraded_members(
    group: ClassicGroup, command: ConsumerGroupHeartbeat, state: GroupsState
) -> tuple[UpgradedMember, ...]:
    """Raises GROUP_ID_NOT_FOUND if the group cannot be upgraded, GROUP_MAX_SIZE_REACHED if it would be too large."""
    if group.members:
        _check_upgrade(group, command, state.settings)
    subscriptions = {member.member_id: _subscription(group, member) for member in group.members.values()}
    taken: set[tuple[UUID, int]] = set()
    targets = {
        member.member_id: _claim_partitions(
            _assigned_partitions(group, member, subscriptions[member.member_id]), state, taken
        )
        for member in group.members.values()
    }
    # If two members claim a partition, the one of the later generation owns it.
    kept = {
        member_id: _claim_partitions(subscription.owned_partitions, state, taken)
        for member_id, subscription in sorted(subscriptions.items(), key=lambda item: -item[1].generation_id)
    }
    return tuple(
        _upgraded(member, subscriptions[member_id], group.generation_id, targets[member_id], kept[member_id])
        for member_id, member in group.members.items()
    )


def _check_upgrade(group: ClassicGroup, command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    max_size = settings.consumer_max_size
    if settings.consumer_migration_policy not in ("upgrade", "bidirectional"):
        raise _cannot_upgrade(group, "online upgrade is disabled: see group.consumer.migration.policy")
    if not group.uses_consumer_protocol_type:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > max_size:
        raise _cannot_upgrade(
            group, "the group size exceeds the consumer group maximum size: see group.consumer.max.size"
        )
    if len(group.members) == max_size and command.member_id not in group.members:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    subscription = read_subscription(member.protocols[0][1])
    if subscription is None:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed")
    return subscription


def _upgraded(
    member: ClassicMember,
    subscription: ConsumerProtocolSubscription,
    epoch: int,
    target: Partitions,
    kept: Partitions,
) -> UpgradedMember:
    """`kept` has the partitions that the member owned when it joined, but that the leader has not assigned to it.
    It may not know that yet, so no other member gets them before this one has rejoined without them. Kafka
    assigns them to others at once.
    """
    return UpgradedMember(
        ConsumerGroupMember(
            member_id=member.member_id,
            metadata=ConsumerGroupMemberMetadataValue(
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id or None,
                client_id=member.client.client_id,
                client_host=member.client.client_host,
                subscribed_topic_names=subscribed_names(subscription),
                subscribed_topic_regex="",
                rebalance_timeout_ms=i32(member.rebalance_timeout_ms),
                server_assignor=None,
                classic_member_metadata=classic_metadata(member.session_timeout_ms, member.protocols),
            ),
            member_epoch=epoch,
            previous_member_epoch=epoch,
            state=MemberState.UNREVOKED_PARTITIONS if kept else MemberState.STABLE,
            assigned=_with_epoch(epoch, target),
            pending_revocation=_with_epoch(epoch, kept),
        ),
        target,
    )


def _with_epoch(epoch: int, partitions: Partitions) -> Assigned:
    return {topic_id: dict.fromkeys(sorted(of_topic), epoch) for topic_id, of_topic in partitions.items()}


def _claim_partitions(
    named: tuple[tuple[str, tuple[int, ...]], ...], state: GroupsState, taken: set[tuple[UUID, int]]
) -> dict[UUID, frozenset[int]]:
    """The partitions of existing topics that no other member has claimed. If a leader assigned a partition twice, the
    first member gets it, because a consumer group allows one owner only.
    """
    found: dict[UUID, frozenset[int]] = {}
    for name, partitions in named:
        topic = state.topics.find(name)
        if topic is not None:
            free = frozenset(p for p in partitions if (topic.topic_id, p) not in taken)
            taken.update((topic.topic_id, partition) for partition in free)
            if free:
                found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | free
    return found


def _assigned_partitions(
    group: ClassicGroup, member: ClassicMember, subscription: ConsumerProtocolSubscription
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The leader's last assignment. If the next rebalance has dropped that, a cooperative member still owns the
    partitions that it reported when it joined.
    """
    if member.assignment == NO_ASSIGNMENT:
        return subscription.owned_partitions
    assignment = read_assignment(member.assignment)
    if assignment is None:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed")
    if assignment.user_data and group.protocol_name not in _DEFAULT_ASSIGNORS:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use, whose data would be lost: switch to a default assignor first",
        )
    return assignment.partitions


def write_upgrade(
    group: ClassicGroup,
    members: tuple[UpgradedMember, ...],
    state: GroupsState,
    rebalancer: ConsumerRebalancer,
    decision: GroupDecision,
) -> None:
    """The generation becomes the group epoch. Members with waiting requests are asked to rejoin."""
    group_id, epoch = group.group_id, group.generation_id
    for member in group.members.values():
        response = JoinGroupResponse(ErrorCode.rebalance_in_progress, member.member_id)
        group.respond_to_join(member, response, decision)
        group.respond_to_sync(member, rebalance_in_progress(group_id), decision)
    for pending_id in group.pending_members:
        decision.cancel_timer(session_key(group_id, pending_id))
    decision.cancel_timer(join_key(group_id))
    decision.cancel_timer(sync_key(group_id))

    group.write_tombstones(decision)
    if not members:
        return  # all members have left during the first rebalance: it starts like a new group
    for upgraded in members:
        rebalancer.write_metadata(group_id, upgraded.member, decision)
    consumer_group = state.groups[group_id]
    assert isinstance(consumer_group, ConsumerGroup)
    # A hash of 0 makes the present heartbeat find a difference and compute a new target. The old one may be from a
    # rebalance that did not end, or the topics may have changed since.
    rebalancer.write_epoch(consumer_group, decision, epoch, metadata_hash=0)
    for upgraded in members:
        write_member_target(decision, group_id, upgraded.member.member_id, upgraded.target)
    # A timestamp of 0, so that the next target does not wait for the assignment interval (KIP-1263).
    decision.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=i32(epoch), assignment_timestamp=i64(0)),
    )
    for upgraded in members:
        rebalancer.write_current_assignment(group_id, upgraded.member, decision)
        rebalancer.restart_session(group_id, upgraded.member, decision)


def classic_metadata(
    session_timeout_ms: int, protocols: tuple[tuple[str, bytes], ...]
) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=i32(session_timeout_ms),
        supported_protocols=tuple(ClassicProtocol(name=name, metadata=raw) for name, raw in protocols),
    )


def subscribed_names(subscription: ConsumerProtocolSubscription) -> tuple[str, ...]:
    return tuple(sorted(set(subscription.topics)))


def _cannot_upgrade(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.",
    )
