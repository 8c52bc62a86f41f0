"""SyncGroup: the leader sends the assignment, and each member gets its part."""

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.errors import rebalance_in_progress
from ottla.core.groups.classic.group import (
    COMPLETING_REBALANCE,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from ottla.core.groups.classic.member import NO_ASSIGNMENT
from ottla.core.groups.classic.timers import sync_key
from ottla.core.groups.commands import SyncGroup
from ottla.core.groups.group import GroupDecision
from ottla.model.errors import ErrorCode, KafkaError

# Of a member in the group's record, besides what its client sends: timeouts, and the lengths of its fields.
_MEMBER_OVERHEAD = 64


def sync(
    group: ClassicGroup,
    command: SyncGroup,
    waiter: Waiter,
    decision: GroupDecision,
    now_ms: int,
    *,
    record_bytes_max: int,
) -> None:
    member = group.check_member(command.member_id, command.group_instance_id)
    group.check_generation(command.generation_id)
    _check_protocol(group, command)
    if group.state is PREPARING_REBALANCE:
        raise rebalance_in_progress(group.group_id)
    if group.state is COMPLETING_REBALANCE and member.member_id == group.leader_id:
        _check_size(group, command, record_bytes_max)
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        decision.cancel_timer(sync_key(group.group_id))
    if group.state is STABLE:
        decision.reply(waiter, group.sync_response(member))
        return
    assert group.state is COMPLETING_REBALANCE
    group.await_sync(member, waiter, decision)
    if member.member_id == group.leader_id:
        _take_assignment(group, dict(command.assignments), decision, now_ms)


def _take_assignment(
    group: ClassicGroup, assignments: dict[str, bytes], decision: GroupDecision, now_ms: int
) -> None:
    """Members that the leader left out get an empty assignment."""
    group.transition_to(STABLE, now_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
        if member.awaiting_sync is not None:
            group.respond_to_sync(member, group.sync_response(member), decision)
            member.restart_session(decision)
    group.write(decision)


def _check_size(group: ClassicGroup, command: SyncGroup, record_bytes_max: int) -> None:
    """Rejects an assignment before anything changes if the group's record would be too large for its topic.

    A shard whose record cannot be written is loaded again, with all of its groups.
    """
    protocol = group.protocol_name or ""
    size = sum(len(assignment) for _, assignment in command.assignments) + sum(
        _MEMBER_OVERHEAD
        + len(member.member_id)
        + len(member.group_instance_id or "")
        + len(member.client.client_id)
        + len(member.client.client_host)
        + len(member.metadata(protocol))
        for member in group.members.values()
    )
    if size > record_bytes_max:
        raise KafkaError(
            ErrorCode.unknown_server_error,
            f"Group {group.group_id} with {len(group.members)} members and their assignments takes {size} bytes, more "
            f"than a record of __consumer_offsets may have ({record_bytes_max}). Set its max.message.bytes to a larger "
            "number, or use fewer members, topics or partitions.",
        )


def _check_protocol(group: ClassicGroup, command: SyncGroup) -> None:
    """KIP-559: from v5 on the request contains the protocol that the member knows."""
    claimed = (command.protocol_type, command.protocol_name)
    for given, chosen in zip(claimed, (group.protocol_type, group.protocol_name), strict=True):
        if given is not None and given != chosen:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"Group {group.group_id} has chosen {chosen!r} in generation {group.generation_id}, but member "
                f"{command.member_id} sent {given!r}: rejoin the group.",
            )
