"""The machine of consumer groups: ConsumerGroupHeartbeat, in which all of KIP-848 happens, and its timers.

A heartbeat has three parts. The member is added or changed, which makes the group's epoch grow. Where the epoch has
grown, a new target is computed. Then the member goes one step towards its target.
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
from ottla.core.groups.consumer.describe import described
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    response_assignment,
)
from ottla.core.groups.consumer.rebalancing import REGEX_REFRESH_MIN_INTERVAL_MS, Rebalancing
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
    check_member_epoch,
    check_member_state,
    check_not_full,
    check_released,
    check_request,
    known_member,
    known_static_member,
)
from ottla.core.groups.group import Group, GroupDecision
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import ConsumerGroupMemberMetadataValue, GroupValue

# After a change of topics, before groups are looked through for it: one change rarely comes alone.
REFRESH_DELAY_MS = 100
REFRESHED_AT_ONCE_MAX = 100


class Migration(Protocol):
    """How groups change between the protocols as their members do."""

    def upgrade(
        self, group: Group, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int
    ) -> None:
        """Makes a classic group with members a consumer group, or refuses: with GROUP_ID_NOT_FOUND, or with whatever
        stands against this member joining, before anything is changed.
        """
        ...

    def downgrade(
        self, group: ConsumerGroup, leaving: tuple[str, ...], decision: GroupDecision, now_ms: int
    ) -> bool:
        """Makes the group, without those who leave, a classic one, where all that are left speak that protocol."""
        ...


class ConsumerMachine:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self.rebalancing = Rebalancing(state)
        self.migration: Migration | None = None
        self._refresh_is_near = False

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
        if subscription_changed or self.rebalancing.is_stale(group, now_ms):
            self.rebalancing.refresh_subscriptions(group, decision, now_ms, changed=subscription_changed)
        self.rebalancing.update_target(group, decision, now_ms)
        member = self.rebalancing.reconcile(
            group,
            command.member_id,
            command.topic_partitions,
            decision,
            subscription_changed=subscription_changed,
        )
        self.rebalancing.restart_session(group.group_id, member, decision)

        tells_assignment = (
            command.member_epoch == JOIN_EPOCH
            or (member is not admitted and member.assigned != admitted.assigned)
            or _is_full_request(command)
        )
        decision.reply(
            waiter,
            ConsumerGroupHeartbeatResponse(
                member.member_id,
                member.member_epoch,
                self.rebalancing.heartbeat_interval_ms(group, member),
                response_assignment(member.assigned) if tells_assignment else None,
            ),
        )

    def describe(
        self, command: DescribeConsumerGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        decision.reply(waiter, described(self._existing(command.group_id), self._state))

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {what}.")
        return group

    # -- joining

    def _group(self, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int) -> ConsumerGroup:
        """The group that the member is in or joins, which is made with its first member.

        Where it is a classic one, it is replaced if nobody is in it, and upgraded otherwise.
        """
        group = self._state.groups.get(command.group_id)
        if not isinstance(group, ConsumerGroup):
            if command.member_epoch != JOIN_EPOCH:
                return self._existing(command.group_id)
            if group is not None:
                self._make_way(group, command, decision, now_ms)
                group = self._state.groups.get(command.group_id)
            if not isinstance(group, ConsumerGroup):
                group = ConsumerGroup(command.group_id, self._state)
                self._state.groups[command.group_id] = group
        check_not_full(group, command.member_id, self._state.settings)
        return group

    def _make_way(
        self, group: Group, command: ConsumerGroupHeartbeat, decision: GroupDecision, now_ms: int
    ) -> None:
        if group.is_empty:
            group.write_tombstones(decision)
            self._state.groups.pop(group.group_id, None)  # one that only held offsets has no record
        elif self.migration is not None:
            self.migration.upgrade(group, command, decision, now_ms)
        else:
            self._existing(group.group_id)

    def _admit(
        self, group: ConsumerGroup, command: ConsumerGroupHeartbeat, decision: GroupDecision
    ) -> ConsumerGroupMember:
        """The member as it was before this heartbeat. A static one may take the place of its predecessor."""
        member_id, joins = command.member_id, command.member_epoch == JOIN_EPOCH
        if command.instance_id is not None:
            if not joins:
                member = known_static_member(group, command.instance_id, member_id)
                check_member_epoch(member, command)
                check_member_state(member, command)
                return member
            predecessor = group.static_member(command.instance_id)
            if predecessor is not None:
                check_released(predecessor, command)
                return self.rebalancing.replace_member(group, predecessor, member_id, decision)
        if joins and member_id not in group.members:
            return ConsumerGroupMember(member_id=member_id)
        member = known_member(group, member_id)
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
        """Writes what the member told anew. Returns whether it is subscribed to something else than before."""
        metadata = _updated_metadata(member.metadata, command)
        if metadata is member.metadata or metadata == member.metadata:
            return False
        updated = member.with_metadata(metadata)
        self.rebalancing.write_metadata(group.group_id, updated, decision)
        if updated.regex != member.regex:
            self.rebalancing.forget_unused_regexes(group, decision)
            return True
        return metadata.subscribed_topic_names != member.metadata.subscribed_topic_names

    # -- leaving

    def _leave(
        self, command: ConsumerGroupHeartbeat, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._existing(command.group_id)
        if command.instance_id is None:
            member = known_member(group, command.member_id)
        else:
            member = known_static_member(group, command.instance_id, command.member_id)
        if command.member_epoch == LEAVE_STATIC_EPOCH:
            self.rebalancing.write_current(group.group_id, member.gone_for_a_while(), decision)
            decision.cancel_timer(revocation_key(group.group_id, member.member_id))
        else:
            self._remove(group, member.member_id, decision, now_ms)
        left = ConsumerGroupHeartbeatResponse(
            command.member_id, command.member_epoch, heartbeat_interval_ms=0
        )
        decision.reply(waiter, left)

    def _remove(self, group: ConsumerGroup, member_id: str, decision: GroupDecision, now_ms: int) -> None:
        if self.migration is None or not self.migration.downgrade(group, (member_id,), decision, now_ms):
            self.rebalancing.remove_members(group, (member_id,), decision, now_ms)

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
            group.assignment_is_timed = False
            self.rebalancing.update_target(group, decision, now_ms, is_due=True)

    def on_topics_changed(self, decision: GroupDecision, now_ms: int) -> None:
        """The next heartbeat of a group sees it by itself; the timer is for groups in which none comes soon."""
        if not self._refresh_is_near:
            self._refresh_is_near = True
            decision.start_timer(REFRESH_KEY, REFRESH_DELAY_MS, RefreshSubscriptions())

    def refresh(
        self, timer: RefreshSubscriptions, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        """Some at a time, so that a shard with many groups goes on answering."""
        self._refresh_is_near = False
        refreshed = 0
        has_regexes = False
        for group in self._state.groups.values():
            if not isinstance(group, ConsumerGroup) or group.is_empty:
                continue
            if self.rebalancing.is_stale(group, now_ms):
                if refreshed == REFRESHED_AT_ONCE_MAX:
                    self.on_topics_changed(decision, now_ms)
                    return
                refreshed += 1
                self.rebalancing.refresh_subscriptions(group, decision, now_ms)
                self.rebalancing.update_target(group, decision, now_ms)
            has_regexes = has_regexes or self.rebalancing.has_old_regexes(group)
        if has_regexes:
            decision.start_timer(REFRESH_KEY, REGEX_REFRESH_MIN_INTERVAL_MS, RefreshSubscriptions())

    # -- the log

    def replay(self, key: replay.ConsumerKey, value: GroupValue | None) -> None:
        replay.replay(self._state, key, value)

    def on_loaded(self, decision: GroupDecision, now_ms: int) -> None:
        """Nobody knows when the members were last heard of: their sessions begin now."""
        for group in self._state.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self.rebalancing.restart_session(group.group_id, member, decision)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
                    self.rebalancing.time_revocation(group.group_id, member, decision)
            if group.assignment_epoch < group.group_epoch and group.members:
                self.rebalancing.time_assignment(group, decision)
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
    """What is not told stays as it was. Whoever sends this heartbeat speaks the consumer protocol."""
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
    """As a member sends it when it is not sure what the coordinator knows: it is told its assignment again."""
    return (
        command.rebalance_timeout_ms != -1
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
        and command.topic_partitions is not None
    )
