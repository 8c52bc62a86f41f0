"""The machine of consumer groups: ConsumerGroupHeartbeat, which is the whole protocol of KIP-848, and its timers.

A heartbeat has three parts. It adds or changes the member, which raises the group's epoch. If the epoch was raised, it
computes a new target. Then it moves the member one step towards its target.
"""

from dataclasses import replace
from typing import Any, Protocol

from ottla.core.coordination import Waiter
from ottla.core.groups.commands import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribeConsumerGroup,
)
from ottla.core.groups.consumer import replay
from ottla.core.groups.consumer.describe import describe_group
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    response_assignment,
)
from ottla.core.groups.consumer.rebalance import REGEX_REFRESH_MIN_INTERVAL_MS, ConsumerRebalancer
from ottla.core.groups.consumer.regex import check_regex
from ottla.core.groups.consumer.timers import (
    REFRESH_KEY,
    AssignmentDue,
    RefreshSubscriptions,
    RevocationTimedOut,
    SessionExpired,
    revocation_key,
)
from ottla.core.groups.consumer.validation import (
    check_instance_released,
    check_member_epoch,
    check_member_state,
    check_not_full,
    check_request,
    require_member,
    require_static_member,
)
from ottla.core.groups.group import Group, GroupDecision
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import ConsumerGroupMemberMetadataValue, GroupValue

# How long to wait after a change of topics before groups are refreshed, because changes often come in bursts.
_REFRESH_DELAY_MS = 100
_REFRESHED_AT_ONCE_MAX = 100


class ConsumerMigration(Protocol):
    """Converts groups between the protocols."""

    def upgrade(
        self, group: Group, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int
    ) -> None:
        """Converts a classic group with members to a consumer group. Raises GROUP_ID_NOT_FOUND, or the error that this
        member's join would get, if that is not possible; the state is unchanged then.
        """
        ...

    def downgrade(
        self, group: ConsumerGroup, leaving: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> bool:
        """Converts the group to a classic one if all members but those in `leaving` use the classic protocol."""
        ...


class ConsumerMachine:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self.rebalancer = ConsumerRebalancer(state)
        self.migration: ConsumerMigration | None = None
        self._refresh_is_scheduled = False

    # -- commands

    def heartbeat(
        self, command: ConsumerGroupHeartbeat, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        check_request(command, self._state.settings)
        if command.member_epoch < JOIN_EPOCH:
            self._leave(command, waiter, decision, now_ms)
            return
        if command.subscribed_topic_regex:
            check_regex(command.subscribed_topic_regex)
        group = self._group(command, decision, now_ms)
        admitted = self._admit(group, command, decision)

        subscription_changed = self._update_member(group, admitted, command, decision)
        if subscription_changed or self.rebalancer.is_stale(group, now_ms):
            self.rebalancer.refresh_subscriptions(group, decision, now_ms, changed=subscription_changed)
        self.rebalancer.update_target(group, decision, now_ms)
        member = self.rebalancer.reconcile(
            group,
            command.member_id,
            command.topic_partitions,
            decision,
            subscription_changed=subscription_changed,
        )
        self.rebalancer.restart_session(group.group_id, member, decision)

        includes_assignment = (
            command.member_epoch == JOIN_EPOCH
            or (member is not admitted and member.assigned != admitted.assigned)
            or _is_full_request(command)
        )
        decision.reply(
            waiter,
            ConsumerGroupHeartbeatResponse(
                member.member_id,
                member.member_epoch,
                self.rebalancer.heartbeat_interval_ms(group, member),
                response_assignment(member.assigned) if includes_assignment else None,
            ),
        )

    def describe(
        self, command: DescribeConsumerGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        decision.reply(waiter, describe_group(self._require_group(command.group_id), self._state))

    def _require_group(self, group_id: str) -> ConsumerGroup:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {what}.")
        return group

    # -- joining

    def _group(self, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int) -> ConsumerGroup:
        """The member's group, created if this is its first member.

        A classic group is replaced if it is empty, and upgraded otherwise.
        """
        group = self._state.groups.get(command.group_id)
        if not isinstance(group, ConsumerGroup):
            if command.member_epoch != JOIN_EPOCH:
                return self._require_group(command.group_id)
            if group is not None:
                self._replace_or_upgrade(group, command, decision, now_ms)
                group = self._state.groups.get(command.group_id)
            if not isinstance(group, ConsumerGroup):
                group = ConsumerGroup(command.group_id, self._state)
                self._state.groups[command.group_id] = group
        check_not_full(group, command.member_id, self._state.settings)
        return group

    def _replace_or_upgrade(
        self, group: Group, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int
    ) -> None:
        if group.is_empty:
            group.write_tombstones(decision)
            self._state.groups.pop(group.group_id, None)  # a group with offsets only has no record
        elif self.migration is not None:
            self.migration.upgrade(group, command, decision, now_ms)
        else:
            self._require_group(group.group_id)

    def _admit(
        self, group: ConsumerGroup, command: ConsumerGroupHeartbeat, decision: GroupDecision
    ) -> ConsumerGroupMember:
        """The member as it was before this heartbeat. A static member may replace its previous incarnation."""
        member_id, joins = command.member_id, command.member_epoch == JOIN_EPOCH
        if command.instance_id is not None:
            if not joins:
                member = require_static_member(group, command.instance_id, member_id)
                check_member_epoch(member, command)
                check_member_state(member, command)
                return member
            predecessor = group.static_member(command.instance_id)
            if predecessor is not None:
                check_instance_released(predecessor, command)
                return self.rebalancer.replace_member(group, predecessor, member_id, decision)
        if joins and member_id not in group.members:
            return ConsumerGroupMember(member_id=member_id)
        member = require_member(group, member_id)
        check_member_epoch(member, command)
        check_member_state(member, command)
        return member

    def _update_member(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        command: ConsumerGroupHeartbeat,
        decision: GroupDecision,
    ) -> bool:
        """Writes the changed metadata of the member. Returns whether its subscription has changed."""
        metadata = _updated_metadata(member.metadata, command)
        if metadata is member.metadata or metadata == member.metadata:
            return False
        updated = member.with_metadata(metadata)
        self.rebalancer.write_metadata(group.group_id, updated, decision)
        if updated.regex != member.regex:
            self.rebalancer.delete_unused_regexes(group, decision)
            return True
        return metadata.subscribed_topic_names != member.metadata.subscribed_topic_names

    # -- leaving

    def _leave(
        self, command: ConsumerGroupHeartbeat, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._require_group(command.group_id)
        if command.instance_id is None:
            member = require_member(group, command.member_id)
        else:
            member = require_static_member(group, command.instance_id, command.member_id)
        if command.member_epoch == LEAVE_STATIC_EPOCH:
            self.rebalancer.write_current_assignment(group.group_id, member.after_static_leave(), decision)
            decision.cancel_timer(revocation_key(group.group_id, member.member_id))
        else:
            self._remove(group, member.member_id, decision, now_ms)
        left = ConsumerGroupHeartbeatResponse(
            command.member_id, command.member_epoch, heartbeat_interval_ms=0
        )
        decision.reply(waiter, left)

    def _remove(self, group: ConsumerGroup, member_id: str, decision: GroupDecision, now_ms: int) -> None:
        if self.migration is None or not self.migration.downgrade(group, (member_id,), decision, now_ms):
            self.rebalancer.remove_members(group, (member_id,), decision, now_ms)

    # -- timers

    def expire_session(
        self, timer: SessionExpired, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._state.groups.get(timer.group_id)
        if isinstance(group, ConsumerGroup) and timer.member_id in group.members:
            self._remove(group, timer.member_id, decision, now_ms)

    def end_revocation(
        self, timer: RevocationTimedOut, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._state.groups.get(timer.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        member = group.members.get(timer.member_id)
        if (
            member is not None
            and member.state is MemberState.UNREVOKED_PARTITIONS
            and member.member_epoch == timer.member_epoch
        ):
            self._remove(group, timer.member_id, decision, now_ms)

    def assign(self, timer: AssignmentDue, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        group = self._state.groups.get(timer.group_id)
        if isinstance(group, ConsumerGroup):
            group.has_assignment_timer = False
            self.rebalancer.update_target(group, decision, now_ms, is_due=True)

    def on_topics_changed(self, decision: GroupDecision, now_ms: int) -> None:
        """The next heartbeat of a group would notice the change; the timer serves groups without one soon."""
        if not self._refresh_is_scheduled:
            self._refresh_is_scheduled = True
            decision.start_timer(REFRESH_KEY, _REFRESH_DELAY_MS, RefreshSubscriptions())

    def refresh(
        self, timer: RefreshSubscriptions, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        """Refreshes a limited number of groups at a time, so that a shard with many groups stays responsive."""
        self._refresh_is_scheduled = False
        refreshed = 0
        has_regexes = False
        for group in self._state.groups.values():
            if not isinstance(group, ConsumerGroup) or group.is_empty:
                continue
            if self.rebalancer.is_stale(group, now_ms):
                if refreshed == _REFRESHED_AT_ONCE_MAX:
                    self.on_topics_changed(decision, now_ms)
                    return
                refreshed += 1
                self.rebalancer.refresh_subscriptions(group, decision, now_ms)
                self.rebalancer.update_target(group, decision, now_ms)
            has_regexes = has_regexes or self.rebalancer.has_outdated_regexes(group)
        if has_regexes:
            decision.start_timer(REFRESH_KEY, REGEX_REFRESH_MIN_INTERVAL_MS, RefreshSubscriptions())

    # -- the log

    def replay(self, key: replay.ConsumerKey, value: GroupValue | None) -> None:
        replay.replay(self._state, key, value)

    def on_loaded(self, decision: GroupDecision, now_ms: int) -> None:
        """Restarts all sessions, because the log does not tell when the members sent their last heartbeats."""
        for group in self._state.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self.rebalancer.restart_session(group.group_id, member, decision)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
                    self.rebalancer.start_revocation_timer(group.group_id, member, decision)
            if group.assignment_epoch < group.group_epoch and group.members:
                self.rebalancer.start_assignment_timer(group, decision)
        self.on_topics_changed(decision, now_ms)

    def durable_state(self) -> dict[str, Any]:
        return {
            group_id: group.durable_state()
            for group_id, group in self._state.groups.items()
            if isinstance(group, ConsumerGroup)
        }

    def validate(self) -> None:
        for group in self._state.groups.values():
            if isinstance(group, ConsumerGroup):
                group.validate()

    DECIDE = {  # noqa: RUF012
        ConsumerGroupHeartbeat: heartbeat,
        DescribeConsumerGroup: describe,
        SessionExpired: expire_session,
        RevocationTimedOut: end_revocation,
        AssignmentDue: assign,
        RefreshSubscriptions: refresh,
    }


def _updated_metadata(
    metadata: ConsumerGroupMemberMetadataValue, command: ConsumerGroupHeartbeat
) -> ConsumerGroupMemberMetadataValue:
    """Applies the fields that the request contains. The member is no longer a classic one, if it was."""
    changes: dict[str, Any] = {}
    if command.instance_id is not None:
        changes["instance_id"] = command.instance_id
    if command.rack_id is not None:
        changes["rack_id"] = command.rack_id
    if command.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = command.rebalance_timeout_ms
    if command.server_assignor is not None:
        changes["server_assignor"] = command.server_assignor
    if command.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = tuple(sorted(set(command.subscribed_topic_names)))
    if command.subscribed_topic_regex is not None:
        changes["subscribed_topic_regex"] = command.subscribed_topic_regex
    if command.client.client_id != metadata.client_id:
        changes["client_id"] = command.client.client_id
    if command.client.client_host != metadata.client_host:
        changes["client_host"] = command.client.client_host
    if metadata.classic_member_metadata is not None:
        changes["classic_member_metadata"] = None
    return replace(metadata, **changes) if changes else metadata


def _is_full_request(command: ConsumerGroupHeartbeat) -> bool:
    """A member sends all fields if it is not sure what the coordinator knows; then it gets its assignment again."""
    return (
        command.rebalance_timeout_ms != -1
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
        and command.topic_partitions is not None
    )
