"""Members of a consumer group that use the classic protocol (KIP-848).

To them it looks like a classic group of which they are never the leader. JoinGroup carries their subscription and owned
partitions, and moves them one step towards their target. SyncGroup returns their assignment. Heartbeat asks them to
rejoin if there is another step. Their generation is their member epoch.
"""

from dataclasses import replace

from kio.static.primitive import i32

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.errors import rebalance_in_progress, unknown_member
from ottla.core.groups.classic.join import check_session_timeout, inconsistent_protocols
from ottla.core.groups.classic.member import distinct_protocols
from ottla.core.groups.commands import (
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    MemberLeft,
    SyncGroup,
    SyncGroupResponse,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember, MemberState
from ottla.core.groups.consumer.rebalance import ConsumerRebalancer
from ottla.core.groups.consumer.validation import check_not_full, require_member, require_static_member
from ottla.core.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    read_subscription,
)
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.migration.deadlines import Awaited, ClassicMemberTimedOut, Deadlines
from ottla.core.groups.migration.embedded_protocol import embedded_assignment, owned_partitions
from ottla.core.groups.migration.upgrade import classic_metadata, subscribed_names
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError


class ClassicMembers:
    def __init__(self, state: GroupsState, rebalancer: ConsumerRebalancer) -> None:
        self._state = state
        self._rebalancer = rebalancer
        self.deadlines = Deadlines()

    # -- JoinGroup

    def check_join(self, group: ConsumerGroup, command: JoinGroup) -> ConsumerProtocolSubscription:
        """Raises KafkaError if the member cannot join this group. Returns its subscription."""
        check_session_timeout(command, self._state.settings)
        static_id = group.static_members.get(command.group_instance_id or "", "")
        check_not_full(group, command.member_id or static_id, self._state.settings)
        if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
            group.classic_protocols.get(name, 0) == group.num_classic_members for name, _ in command.protocols
        ):
            raise inconsistent_protocols(command)
        subscription = read_subscription(command.protocols[0][1])
        if subscription is None:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"The subscription of member {command.member_id!r} of group {command.group_id} is not valid in the "
                "consumer protocol.",
            )
        member_id = command.member_id
        if member_id and member_id not in group.members and subscription.owned_partitions:
            # Its session has expired while it continues to consume. Without owned partitions any id may join.
            raise unknown_member(group.group_id, member_id)
        return subscription

    def admit(self, group: ConsumerGroup, command: JoinGroup, decision: GroupDecision) -> ConsumerGroupMember:
        """The member as it was before this JoinGroup. A static member may replace its previous incarnation."""
        instance_id = command.group_instance_id
        if instance_id is not None:
            if command.member_id:
                return require_static_member(group, instance_id, command.member_id)
            predecessor = group.static_member(instance_id)
            if predecessor is not None:
                self.cancel_deadlines(group.group_id, predecessor.member_id, decision)
                return self._rebalancer.replace_member(group, predecessor, command.new_member_id, decision)
        member_id = command.member_id or command.new_member_id
        return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        command: JoinGroup,
        subscription: ConsumerProtocolSubscription,
        decision: GroupDecision,
    ) -> bool:
        """Writes the changed metadata of the member. Returns whether its subscription has changed."""
        old = member.metadata
        rebalance_timeout_ms = command.rebalance_timeout_ms
        metadata = replace(
            old,
            instance_id=command.group_instance_id or old.instance_id,
            rack_id=subscription.rack_id or old.rack_id,
            client_id=command.client.client_id,
            client_host=command.client.client_host,
            subscribed_topic_names=subscribed_names(subscription),
            subscribed_topic_regex="",
            rebalance_timeout_ms=i32(
                command.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms
            ),
            classic_member_metadata=classic_metadata(
                command.session_timeout_ms, distinct_protocols(command.protocols)
            ),
        )
        if metadata != old or member.member_id not in group.members:
            self._rebalancer.write_metadata(group.group_id, member.with_metadata(metadata), decision)
        if member.regex:
            self._rebalancer.delete_unused_regexes(group, decision)
            return True
        return metadata.subscribed_topic_names != old.subscribed_topic_names

    def reconcile(
        self,
        group: ConsumerGroup,
        member_id: str,
        subscription: ConsumerProtocolSubscription,
        decision: GroupDecision,
        *,
        changed: bool,
    ) -> ConsumerGroupMember:
        owned = owned_partitions(subscription, self._state.topics)
        return self._rebalancer.reconcile(group, member_id, owned, decision, subscription_changed=changed)

    def on_joined(self, group: ConsumerGroup, member: ConsumerGroupMember, decision: GroupDecision) -> None:
        """The member must sync before the deadline that starts here."""
        self.deadlines.cancel(_timer(group.group_id, member.member_id, Awaited.JOIN), decision)
        self._rebalancer.restart_session(group.group_id, member, decision)
        sync = _timer(group.group_id, member.member_id, Awaited.SYNC)
        self.deadlines.cancel(sync, decision)
        self.deadlines.start(sync, member.metadata.rebalance_timeout_ms, decision)

    # -- SyncGroup

    def sync(self, group: ConsumerGroup, command: SyncGroup, waiter: Waiter, decision: GroupDecision) -> None:
        member = _classic_member(group, command)
        _check_protocol(member, command)
        behind = member.member_epoch < group.group_epoch
        if behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._ask_to_rejoin(group, member, waiter, decision)
            return
        self.deadlines.cancel(_timer(group.group_id, member.member_id, Awaited.SYNC), decision)
        self._rebalancer.restart_session(group.group_id, member, decision)
        assignment = embedded_assignment(member, member.assigned, self._state.topics)
        decision.reply(waiter, SyncGroupResponse(assignment, command.protocol_type, command.protocol_name))

    # -- Heartbeat

    def heartbeat(
        self, group: ConsumerGroup, command: Heartbeat, waiter: Waiter, decision: GroupDecision
    ) -> None:
        member = _classic_member(group, command)
        self._rebalancer.restart_session(group.group_id, member, decision)
        if must_rejoin(group, member):
            self._ask_to_rejoin(group, member, waiter, decision)
        else:
            decision.reply(waiter, None)

    def _ask_to_rejoin(
        self, group: ConsumerGroup, member: ConsumerGroupMember, waiter: Waiter, decision: GroupDecision
    ) -> None:
        join = _timer(group.group_id, member.member_id, Awaited.JOIN)
        self.deadlines.start(join, member.metadata.rebalance_timeout_ms, decision)
        decision.reply(waiter, rebalance_in_progress(group.group_id))

    # -- LeaveGroup

    def resolve_leaving(
        self, group: ConsumerGroup, command: LeaveGroup
    ) -> tuple[tuple[str, ...], tuple[MemberLeft, ...]]:
        """The ids of the members to remove, and the response for each. An administrator may remove a static
        member by its instance id alone, and members of either protocol.
        """
        going: dict[str, None] = {}
        left = []
        for leaving in command.members:
            error = ErrorCode.none
            try:
                going[_leaving_member(group, leaving).member_id] = None
            except KafkaError as rejected:
                error = rejected.code
            left.append(MemberLeft(leaving.member_id, leaving.group_instance_id, error))
        return tuple(going), tuple(left)

    def cancel_deadlines(self, group_id: str, member_id: str, decision: GroupDecision) -> None:
        for awaited in Awaited:
            self.deadlines.cancel(_timer(group_id, member_id, awaited), decision)


def must_rejoin(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """There is a new epoch, there are partitions to revoke, or all partitions that the member waits for are free."""
    if member.member_epoch < group.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        group.is_owned(topic_id, partition)
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _timer(group_id: str, member_id: str, awaited: Awaited) -> ClassicMemberTimedOut:
    return ClassicMemberTimedOut(group_id, member_id, awaited)


def _classic_member(group: ConsumerGroup, command: SyncGroup | Heartbeat) -> ConsumerGroupMember:
    if command.group_instance_id is None:
        member = require_member(group, command.member_id)
    else:
        member = require_static_member(group, command.group_instance_id, command.member_id)
    if not member.uses_classic_protocol:
        raise KafkaError(
            ErrorCode.unknown_member_id, f"Member {member.member_id} does not use the classic protocol."
        )
    if command.generation_id != member.member_epoch:
        raise KafkaError(
            ErrorCode.illegal_generation,
            f"The request generation id {command.generation_id} is not equal to the member epoch "
            f"{member.member_epoch} of member {member.member_id}.",
        )
    return member


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerGroupMember:
    if leaving.group_instance_id is None:
        return require_member(group, leaving.member_id)
    member_id = leaving.member_id or group.static_members.get(leaving.group_instance_id, "")
    return require_static_member(group, leaving.group_instance_id, member_id)


def _check_protocol(member: ConsumerGroupMember, command: SyncGroup) -> None:
    """KIP-559: from v5 on the request contains the protocol that the member knows."""
    claimed = (command.protocol_type, command.protocol_name)
    for given, chosen in zip(claimed, (CONSUMER_PROTOCOL_TYPE, protocol_name(member)), strict=True):
        if given is not None and given != chosen:
            raise KafkaError(
                ErrorCode.inconsistent_group_protocol,
                f"Group {command.group_id} has chosen {chosen!r} for member {member.member_id}, which sent "
                f"{given!r}: rejoin the group.",
            )


def protocol_name(member: ConsumerGroupMember) -> str:
    """The member's most preferred protocol: no member uses it to assign partitions."""
    assert member.classic_member_metadata is not None
    return member.classic_member_metadata.supported_protocols[0].name


def join_response(member: ConsumerGroupMember) -> JoinGroupResponse:
    """Without a leader id, so that the member does not act as the leader."""
    return JoinGroupResponse(
        ErrorCode.none,
        member.member_id,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name(member),
    )
