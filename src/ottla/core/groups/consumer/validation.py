"""Checks of a heartbeat, before it changes anything."""

from ottla.core.groups.commands import ConsumerGroupHeartbeat
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from ottla.core.groups.settings import GroupSettings
from ottla.model.errors import ErrorCode, KafkaError


def check_request(command: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    """The checks that do not need the group."""
    if "consumer" not in settings.rebalance_protocols:
        raise KafkaError(
            ErrorCode.unsupported_version,
            "The consumer protocol is not enabled: add it to group.coordinator.rebalance.protocols.",
        )
    _check_not_blank(command.member_id, "MemberId")
    _check_not_blank(command.group_id, "GroupId")
    _check_not_blank(command.instance_id, "InstanceId")
    _check_not_blank(command.rack_id, "RackId")
    if command.member_epoch == JOIN_EPOCH:
        _check_join(command)
    elif command.member_epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif command.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if command.server_assignor is not None and command.server_assignor not in settings.consumer_assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {command.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(settings.consumer_assignors)}.",
        )


def _check_join(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if command.topic_partitions is None or command.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if command.subscribed_topic_names is None and command.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _check_not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def check_not_full(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    if len(group.members) >= settings.consumer_max_size and member_id not in group.members:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {settings.consumer_max_size} members.",
        )


def check_member_epoch(member: ConsumerGroupMember, command: ConsumerGroupHeartbeat) -> None:
    """The previous epoch is accepted too, because the member may have missed the response with the new one, if it owns
    no other partitions than it has now.
    """
    epoch = command.member_epoch
    if epoch in (member.member_epoch, JOIN_EPOCH):
        return
    if epoch > member.member_epoch:
        raise _fenced("greater", epoch, member)
    owned = command.topic_partitions
    if epoch != member.previous_member_epoch or owned is None or not member.has_all(owned):
        raise _fenced("smaller", epoch, member)


def check_member_state(member: ConsumerGroupMember, command: ConsumerGroupHeartbeat) -> None:
    """A member whose state was written by a later release must start again without partitions."""
    if member.state is MemberState.UNKNOWN:
        owned = command.topic_partitions
        if owned is None or any(partitions for _, partitions in owned):
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )


def _fenced(than: str, epoch: int, member: ConsumerGroupMember) -> KafkaError:
    return KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {than} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def require_member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def require_static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """The member with this instance id. Raises FENCED_INSTANCE_ID if its member id is not `member_id`."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_instance_released(member: ConsumerGroupMember, command: ConsumerGroupHeartbeat) -> None:
    """A static member may replace its previous incarnation only if that has left temporarily."""
    if member.member_epoch != LEAVE_STATIC_EPOCH and not member.uses_classic_protocol:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {command.member_id} with instance id {command.instance_id} cannot join the group "
            f"because the instance id is owned by {member.member_id} member.",
        )
