"""Checks whether a member of a consumer group may commit or fetch offsets.

A commit may have an older epoch if the member has had the partition since that epoch (KIP-1251), because a commit and
the heartbeat response with a new epoch often cross each other.
"""

from typing import TYPE_CHECKING, NoReturn

from ottla.core.groups.commands import OffsetCommit, OffsetFetch, OffsetToCommit, TxnOffsetCommit
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.state import ClusterTopics
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.core.groups.consumer.group import ConsumerGroup


def check_commit(
    group: "ConsumerGroup", topics: ClusterTopics, command: OffsetCommit | TxnOffsetCommit
) -> None:
    in_transaction = isinstance(command, TxnOffsetCommit)
    epoch = (
        command.generation_id if isinstance(command, TxnOffsetCommit) else command.generation_or_member_epoch
    )
    if epoch < 0 and group.is_empty:
        return  # an admin client, or a consumer that assigns its partitions itself
    if in_transaction and epoch == -1 and not command.member_id and command.group_instance_id is None:
        return  # producers need not send the member on whose behalf they commit
    member = _member(group, command.member_id)
    if isinstance(command, OffsetCommit) and not (
        member.uses_classic_protocol or command.supports_stale_member_epoch
    ):
        raise KafkaError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.member_epoch:
        return
    epoch_name = "generation id" if member.uses_classic_protocol else "member epoch"
    if epoch > member.member_epoch:
        message = f"Received {epoch_name} {epoch} is newer than current member epoch {member.member_epoch}."
        _reject(member, in_transaction, message)
    for offset in command.offsets:
        since = _assignment_epoch(member, topics, offset)
        name = f"{offset.topic}-{offset.partition}"
        if since is None:
            message = f"Partition {name} is not assigned or pending revocation for member."
            _reject(member, in_transaction, message)
        if epoch < since:
            message = (
                f"Received {epoch_name} {epoch} is older than assignment epoch {since} for partition {name}."
            )
            _reject(member, in_transaction, message)


def check_fetch(group: "ConsumerGroup", command: OffsetFetch) -> None:
    if command.member_id is None and command.member_epoch < 0:
        return
    member = _member(group, command.member_id or "")
    if command.member_epoch != member.member_epoch:
        epoch_name = "generation id" if member.uses_classic_protocol else "member epoch"
        _reject(
            member,
            False,
            f"The received {epoch_name} {command.member_epoch} does not match "
            f"the expected member epoch {member.member_epoch}.",
        )


def _member(group: "ConsumerGroup", member_id: str) -> ConsumerGroupMember:
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def _assignment_epoch(
    member: ConsumerGroupMember, topics: ClusterTopics, offset: OffsetToCommit
) -> int | None:
    topic_id = offset.topic_id
    if topic_id is None:
        topic = topics.find(offset.topic)
        if topic is None:
            return None
        topic_id = topic.topic_id
    return member.assignment_epoch_of(topic_id, offset.partition)


def _reject(member: ConsumerGroupMember, in_transaction: bool, message: str) -> NoReturn:
    """Producers and classic members only know ILLEGAL_GENERATION."""
    stale = not (in_transaction or member.uses_classic_protocol)
    raise KafkaError(ErrorCode.stale_member_epoch if stale else ErrorCode.illegal_generation, message)
