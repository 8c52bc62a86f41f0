"""The machine of migration: serves classic members of consumer groups, and converts groups between the types.

The other two machines call it if a request is for a group of the other type, or if a member leaves a consumer group.
"""

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.classic.machine import ClassicCommand
from ottla.core.groups.classic.rebalance import ClassicRebalancer
from ottla.core.groups.commands import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    SyncGroup,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import ConsumerGroupMember
from ottla.core.groups.consumer.rebalance import ConsumerRebalancer
from ottla.core.groups.group import Group, GroupDecision
from ottla.core.groups.migration.classic_members import ClassicMembers, join_response
from ottla.core.groups.migration.deadlines import ClassicMemberTimedOut
from ottla.core.groups.migration.downgrade import can_downgrade, downgrade
from ottla.core.groups.migration.upgrade import upgraded_members, write_upgrade
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError


class MigrationMachine:
    def __init__(
        self, state: GroupsState, classic_rebalancer: ClassicRebalancer, rebalancer: ConsumerRebalancer
    ) -> None:
        self._state = state
        self._classic_rebalancer = classic_rebalancer
        self._rebalancer = rebalancer
        self._members = ClassicMembers(state, rebalancer)

    # -- classic members in consumer groups

    def decide(
        self, group: Group, command: ClassicCommand, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> bool:
        if not isinstance(group, ConsumerGroup) or group.is_empty:
            return False
        match command:
            case JoinGroup():
                self._join(group, command, waiter, decision, now_ms)
            case SyncGroup():
                self._members.sync(group, command, waiter, decision)
            case Heartbeat():
                self._members.heartbeat(group, command, waiter, decision)
            case LeaveGroup():
                self._leave(group, command, waiter, decision, now_ms)
        return True

    def _join(
        self, group: ConsumerGroup, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        subscription = self._members.check_join(group, command)
        is_dynamic = command.group_instance_id is None
        if is_dynamic and not command.member_id and command.require_known_member_id:
            # KIP-394. The id need not be stored, because here any id may join.
            decision.reply(waiter, JoinGroupResponse(ErrorCode.member_id_required, command.new_member_id))
            return
        replaced = None if is_dynamic else group.static_member(command.group_instance_id or "")
        is_last_of_its_protocol = (
            replaced is not None
            and not replaced.uses_classic_protocol
            and can_downgrade(group, (replaced.member_id,), self._state.settings, joining=1)
        )
        member = self._members.admit(group, command, decision)
        changed = self._members.update(group, member, command, subscription, decision)
        if changed or self._rebalancer.is_stale(group, now_ms):
            self._rebalancer.refresh_subscriptions(group, decision, now_ms, changed=changed)
        if not is_last_of_its_protocol:
            # Without the interval of KIP-1263: a classic member would rejoin again and again until the target is there.
            self._rebalancer.update_target(group, decision, now_ms, is_due=True)
        member = self._members.reconcile(group, member.member_id, subscription, decision, changed=changed)
        if is_last_of_its_protocol:
            self._downgrade_on_rejoin(group, member, command, waiter, decision, now_ms)
        else:
            self._members.on_joined(group, member, decision)
            decision.reply(waiter, join_response(member))

    def _downgrade_on_rejoin(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        command: JoinGroup,
        waiter: Waiter,
        decision: GroupDecision,
        now_ms: int,
    ) -> None:
        """The last member of the consumer protocol has restarted as a classic one. If the group is stable, the
        assignment stays and this member becomes the leader, which watches the topics (KIP-814). Else all
        members rejoin.
        """
        if group.state != "Stable" or not command.can_skip_assignment:
            self._downgrade(group, (), decision, now_ms)
            decision.reply(waiter, join_response(member))
            return
        classic = self._downgrade(group, (), decision, now_ms, leader_id=member.member_id)
        response = classic.join_response(member.member_id, with_members=True)
        decision.reply(waiter, response._replace(skip_assignment=True))

    def _leave(
        self, group: ConsumerGroup, command: LeaveGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        leaving, response = self._members.resolve_leaving(group, command)
        if leaving:
            self._remove(group, leaving, decision, now_ms)
        decision.reply(waiter, response)

    def expire_deadline(
        self, timer: ClassicMemberTimedOut, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._state.groups.get(timer.group_id)
        if not self._members.deadlines.expire(timer) or not isinstance(group, ConsumerGroup):
            return
        member = group.members.get(timer.member_id)
        if member is not None and member.uses_classic_protocol:
            self._remove(group, (timer.member_id,), decision, now_ms)

    def _remove(
        self, group: ConsumerGroup, member_ids: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> None:
        for member_id in member_ids:
            self._members.cancel_deadlines(group.group_id, member_id, decision)
        if not self.downgrade(group, member_ids, decision, now_ms):
            self._rebalancer.remove_members(group, member_ids, decision, now_ms)

    # -- from one type to the other

    def upgrade(
        self, group: Group, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int
    ) -> None:
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group.group_id} is not a consumer group.")
        members = upgraded_members(group, command, self._state)
        write_upgrade(group, members, self._state, self._rebalancer, decision)

    def downgrade(
        self, group: ConsumerGroup, leaving: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> bool:
        if not can_downgrade(group, leaving, self._state.settings):
            return False
        self._downgrade(group, leaving, decision, now_ms)
        return True

    def _downgrade(
        self,
        group: ConsumerGroup,
        leaving: tuple[str, ...],
        decision: GroupDecision,
        now_ms: int,
        leader_id: str | None = None,
    ) -> ClassicGroup:
        for member_id in group.members:
            self._members.cancel_deadlines(group.group_id, member_id, decision)
        rebalancer = self._classic_rebalancer
        return downgrade(group, leaving, self._state, rebalancer, decision, now_ms, leader_id=leader_id)

    DECIDE = {ClassicMemberTimedOut: expire_deadline}  # noqa: RUF012
