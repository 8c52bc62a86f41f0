"""The machine of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroup, and their timers.

When a member joins, the group rebalances: all members rejoin (`rebalance`), then the leader assigns the partitions
(`sync`). The session timer removes members that send no heartbeats, which starts another rebalance.
"""

from typing import Any, Protocol

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.errors import rebalance_in_progress, unknown_member
from ottla.core.groups.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    STABLE,
    ClassicGroup,
)
from ottla.core.groups.classic.join import ClassicJoin
from ottla.core.groups.classic.rebalance import ClassicRebalancer
from ottla.core.groups.classic.sync import sync
from ottla.core.groups.classic.timers import (
    InitialRebalanceDelayOver,
    MemberSessionExpired,
    RebalanceTimedOut,
    SyncTimedOut,
    session_key,
)
from ottla.core.groups.commands import (
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberLeft,
    SyncGroup,
)
from ottla.core.groups.group import Group, GroupDecision
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import GroupMetadataKey, GroupMetadataValue, GroupValue

ClassicCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup


class ClassicMigration(Protocol):
    """Serves classic members in groups that have been upgraded to the consumer protocol."""

    def decide(
        self, group: Group, command: ClassicCommand, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> bool:
        """Decides the command if the group has members of the consumer protocol; else returns False."""
        ...


class ClassicMachine:
    def __init__(self, state: GroupsState) -> None:
        self._state = state
        self.migration: ClassicMigration | None = None
        self.rebalancer = ClassicRebalancer(state.settings.initial_rebalance_delay_ms)
        self._join = ClassicJoin(state, self.rebalancer)

    # -- commands

    def join_group(self, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        _check_group_id(command.group_id)
        if not self._try_migration(command, waiter, decision, now_ms):
            self._join.join(command, waiter, decision, now_ms)

    def sync_group(self, command: SyncGroup, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        group = self._state.groups.get(command.group_id)
        if isinstance(group, ClassicGroup):
            limit = self._state.settings.record_bytes_max
            sync(group, command, waiter, decision, now_ms, record_bytes_max=limit)
        elif not self._try_migration(command, waiter, decision, now_ms):
            _check_group_id(command.group_id)
            raise unknown_member(command.group_id, command.member_id)

    def heartbeat(self, command: Heartbeat, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        group = self._state.groups.get(command.group_id)
        if isinstance(group, ClassicGroup):
            member = group.check_member(command.member_id, command.group_instance_id)
            group.check_generation(command.generation_id)
            member.restart_session(decision)
            response = rebalance_in_progress(group.group_id) if group.is_rebalancing else None
            decision.reply(waiter, response)
        elif not self._try_migration(command, waiter, decision, now_ms):
            _check_group_id(command.group_id)
            raise unknown_member(command.group_id, command.member_id)

    def leave_group(self, command: LeaveGroup, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        _check_group_id(command.group_id)
        if self._try_migration(command, waiter, decision, now_ms):
            return
        group = self._find(command.group_id)
        left = tuple(self._leave(group, leaving, decision) for leaving in command.members)
        if group is not None and any(member.error_code is ErrorCode.none for member in left):
            self._on_members_removed(group, decision, now_ms)
        decision.reply(waiter, left)

    def _try_migration(
        self, command: ClassicCommand, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> bool:
        group = self._state.groups.get(command.group_id)
        return (
            self.migration is not None
            and group is not None
            and not isinstance(group, ClassicGroup)
            and self.migration.decide(group, command, waiter, decision, now_ms)
        )

    def _leave(
        self, group: ClassicGroup | None, leaving: LeavingMember, decision: GroupDecision
    ) -> MemberLeft:
        """KIP-345: an administrator may remove a static member by its group instance id, without a member id."""
        error = ErrorCode.none
        member_id: str | None = leaving.member_id
        if group is None:
            error = ErrorCode.unknown_member_id
        elif not member_id:
            member_id = group.static_members.get(leaving.group_instance_id or "")
            error = ErrorCode.none if member_id else ErrorCode.unknown_member_id
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, leaving.group_instance_id)
            except KafkaError as rejected:
                error = rejected.code
        if group is not None and member_id and error is ErrorCode.none:
            self._remove(group, member_id, decision)
        return MemberLeft(leaving.member_id, leaving.group_instance_id, error)

    def describe_group(
        self, command: DescribeGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._find(command.group_id)
        if group is None:
            raise KafkaError(
                ErrorCode.group_id_not_found,
                f"There is no classic group {command.group_id}: ListGroups shows the existing ones.",
            )
        decision.reply(waiter, group.as_described_group())

    # -- timers

    def expire_session(
        self, timer: MemberSessionExpired, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._find(timer.group_id)
        if group is None:
            return
        member = group.members.get(timer.member_id)
        if timer.member_id not in group.pending_members and (member is None or member.awaits_response):
            return
        self._remove(group, timer.member_id, decision)
        if group.is_rebalancing and group.has_everyone_joined:
            self.rebalancer.complete_join(group, decision, now_ms)
        elif member is not None:
            self._on_members_removed(group, decision, now_ms)

    def end_rebalance(
        self, timer: RebalanceTimedOut, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._find(timer.group_id)
        if group is not None and group.is_rebalancing:
            self.rebalancer.complete_join(group, decision, now_ms)

    def end_initial_delay(
        self, timer: InitialRebalanceDelayOver, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group = self._find(timer.group_id)
        if group is not None and group.is_in_initial_rebalance:
            self.rebalancer.end_initial_delay(group, timer, decision, now_ms)

    def end_sync(self, timer: SyncTimedOut, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        group = self._find(timer.group_id)
        if group is None or group.generation_id != timer.generation_id or not group.pending_sync:
            return
        for member_id in list(group.pending_sync):
            self._remove(group, member_id, decision)
        self.rebalancer.begin(group, decision, now_ms)

    # -- the log

    def replay(self, key: GroupMetadataKey, value: GroupValue | None) -> None:
        if value is not None:
            assert isinstance(value, GroupMetadataValue)
            self._state.groups[key.group] = ClassicGroup.from_record(key.group, value)
            return
        group = self._find(key.group)
        if group is not None:
            group.state = DEAD
            del self._state.groups[key.group]

    def on_loaded(self, decision: GroupDecision, now_ms: int) -> None:
        """Restarts all sessions, because the log does not tell when the members sent their last heartbeats."""
        for group in self._state.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                member.restart_session(decision)
            # `group.max.size` was lowered. A rebalance lets all members commit, then rejects the last to rejoin.
            is_too_large = len(group.members) > self._state.settings.max_size
            # A downgrade from the consumer protocol wrote the group without a leader, and the rebalance did not end.
            has_no_leader = bool(group.members) and group.leader_id is None
            if is_too_large or has_no_leader:
                self.rebalancer.begin(group, decision, now_ms)

    def durable_state(self) -> dict[str, Any]:
        return {
            group_id: group.last_written
            for group_id, group in self._state.groups.items()
            if isinstance(group, ClassicGroup)
        }

    def validate(self) -> None:
        for group in self._state.groups.values():
            if isinstance(group, ClassicGroup):
                group.validate()

    # -- helpers

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _remove(self, group: ClassicGroup, member_id: str, decision: GroupDecision) -> None:
        decision.cancel_timer(session_key(group.group_id, member_id))
        group.remove(member_id, decision)

    def _on_members_removed(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> None:
        if group.state in (STABLE, COMPLETING_REBALANCE):
            self.rebalancer.begin(group, decision, now_ms)
        else:
            self.rebalancer.proceed(group, decision, now_ms)

    DECIDE = {  # noqa: RUF012
        JoinGroup: join_group,
        SyncGroup: sync_group,
        Heartbeat: heartbeat,
        LeaveGroup: leave_group,
        DescribeGroup: describe_group,
        MemberSessionExpired: expire_session,
        RebalanceTimedOut: end_rebalance,
        InitialRebalanceDelayOver: end_initial_delay,
        SyncTimedOut: end_sync,
    }


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "The group id is empty: set group.id.")
