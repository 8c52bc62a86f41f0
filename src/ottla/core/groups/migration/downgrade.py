"""Converts a consumer group to a classic one when its last member with the consumer protocol leaves."""

from collections.abc import Mapping
from uuid import UUID

from ottla.core.groups.classic.group import STABLE, ClassicGroup
from ottla.core.groups.classic.member import ClassicMember
from ottla.core.groups.classic.rebalance import ClassicRebalancer
from ottla.core.groups.commands import Client
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.consumer.timers import assignment_key, revocation_key, session_key
from ottla.core.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.migration.embedded_protocol import embedded_assignment
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState


def can_downgrade(
    group: ConsumerGroup, without: tuple[str, ...], settings: GroupSettings, *, joining: int = 0
) -> bool:
    """Whether the group can become classic without these members and with `joining` new classic members: all that
    remain use the classic protocol, and the settings allow it.
    """
    left = len(group.members) - len(without)
    classic = group.num_classic_members - sum(group.members[i].uses_classic_protocol for i in without)
    return (
        classic == left
        and 0 < left + joining <= settings.max_size
        and settings.consumer_migration_policy in ("downgrade", "bidirectional")
    )


def downgrade(
    group: ConsumerGroup,
    leaving: tuple[str, ...],
    state: GroupsState,
    rebalancer: ClassicRebalancer,
    decision: GroupDecision,
    now_ms: int,
    *,
    leader_id: str | None,
) -> ClassicGroup:
    """Replaces the consumer group by a classic group, with its epoch as the generation.

    Without a leader all members must rejoin. The record without a leader tells a reloaded shard to start the rebalance,
    for which there is no other record.
    """
    classic = ClassicGroup(group.group_id)
    for member in group.members.values():
        if member.member_id not in leaving:
            classic.add(_classic_member(group, member, state))
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    classic.protocol_name = classic.select_protocol()
    classic.compute_subscribed_topics()
    classic.generation_id = group.group_epoch
    classic.state = STABLE
    classic.state_timestamp_ms = now_ms
    classic.leader_id = leader_id

    for member_id in group.members:
        decision.cancel_timer(session_key(group.group_id, member_id))
        decision.cancel_timer(revocation_key(group.group_id, member_id))
    decision.cancel_timer(assignment_key(group.group_id))
    group.write_tombstones(decision)
    classic.write(decision)
    state.groups[group.group_id] = classic
    for classic_member in classic.members.values():
        classic_member.restart_session(decision)
    if leader_id is None:
        rebalancer.begin(classic, decision, now_ms)
    return classic


def _classic_member(group: ConsumerGroup, member: ConsumerGroupMember, state: GroupsState) -> ClassicMember:
    metadata = member.metadata
    assert metadata.classic_member_metadata is not None
    return ClassicMember(
        group.group_id,
        member.member_id,
        client=Client(metadata.client_id, metadata.client_host),
        group_instance_id=metadata.instance_id,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=metadata.classic_member_metadata.session_timeout_ms,
        protocols=tuple(
            (protocol.name, protocol.metadata)
            for protocol in metadata.classic_member_metadata.supported_protocols
        ),
        assignment=embedded_assignment(member, _held_partitions(member), state.topics),
    )


def _held_partitions(member: ConsumerGroupMember) -> Mapping[UUID, frozenset[int]]:
    """The partitions that the member may still consume: those that it has, and those that it has not revoked yet.

    KIP-848 assigns a partition only after its owner has revoked it. Kafka takes the target instead: if the group is
    upgraded again before the member has rejoined, others get the partitions that this member has not revoked.
    """
    held = {topic_id: frozenset(of_topic) for topic_id, of_topic in member.assigned.items()}
    for topic_id, of_topic in member.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | of_topic.keys()
    return held
