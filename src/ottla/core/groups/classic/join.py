"""JoinGroup: new members, members that rejoin, and static members that restart with a new member id."""

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.errors import unknown_member
from ottla.core.groups.classic.group import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
)
from ottla.core.groups.classic.member import ClassicMember, distinct_protocols
from ottla.core.groups.classic.rebalance import ClassicRebalancer
from ottla.core.groups.classic.timers import NEW_MEMBER_JOIN_TIMEOUT_MS, MemberSessionExpired, session_key
from ottla.core.groups.commands import JoinGroup, JoinGroupResponse
from ottla.core.groups.group import GroupDecision
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import GroupMetadataKey


class ClassicJoin:
    def __init__(self, state: GroupsState, rebalancer: ClassicRebalancer) -> None:
        self._state = state
        self._rebalancer = rebalancer

    def join(self, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int) -> None:
        check_session_timeout(command, self._state.settings)
        group = self._group_to_join(command)
        if not self._has_room(group, command):
            self._reject_member(group, command, waiter, decision, now_ms)
            return
        if not group.supports(command.protocol_type, command.protocols):
            raise inconsistent_protocols(command)
        if not command.member_id:
            group = self._create_if_new(group, decision, now_ms)
            self._join_without_id(group, command, waiter, decision, now_ms)
        else:
            self._join_with_id(group, command, waiter, decision, now_ms)

    def _group_to_join(self, command: JoinGroup) -> ClassicGroup:
        """The existing classic group, or a new one that is not in the state yet (it may replace an empty group of
        another type).
        """
        group = self._state.groups.get(command.group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and not group.is_empty:
            raise inconsistent_protocols(command)
        if command.member_id:
            raise unknown_member(command.group_id, command.member_id)
        return ClassicGroup(command.group_id)

    def _create_if_new(self, group: ClassicGroup, decision: GroupDecision, now_ms: int) -> ClassicGroup:
        current = self._state.groups.get(group.group_id)
        if current is group:
            return group
        if current is not None:
            current.write_tombstones(decision)
        group.state_timestamp_ms = now_ms
        decision.write(GroupMetadataKey(group=group.group_id), group.snapshot())
        created = self._state.groups[group.group_id]
        assert isinstance(created, ClassicGroup)
        return created

    def _has_room(self, group: ClassicGroup, command: JoinGroup) -> bool:
        """Checks `group.max.size`. While a group prepares a rebalance, only members that have rejoined count: if the
        limit was lowered, the last members to rejoin are rejected. A static member that restarts keeps its place.
        """
        max_size = self._state.settings.max_size
        member_id = command.member_id or group.static_members.get(command.group_instance_id or "")
        member = group.members.get(member_id or "")
        if group.state is EMPTY:
            return True
        if group.state is PREPARING_REBALANCE:
            has_joined = member is not None and member.awaiting_join is not None
            return has_joined or group.num_awaiting_join < max_size
        return member is not None or len(group.members) < max_size

    def _reject_member(
        self, group: ClassicGroup, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        group.remove(command.member_id, decision)
        decision.reply(waiter, JoinGroupResponse(ErrorCode.group_max_size_reached, ""))
        self._rebalancer.proceed(group, decision, now_ms)

    # -- without a member id

    def _join_without_id(
        self, group: ClassicGroup, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        member_id = command.new_member_id
        if command.group_instance_id is not None:
            old_id = group.static_members.get(command.group_instance_id)
            if old_id is not None:
                self._replace_static(group, group.members[old_id], command, waiter, decision, now_ms)
                return
        elif command.require_known_member_id:
            # KIP-394: a client that misses this response joins again, so it is no member before it sends its id.
            group.pending_members[member_id] = None
            expired = MemberSessionExpired(group.group_id, member_id)
            decision.start_timer(session_key(group.group_id, member_id), command.session_timeout_ms, expired)
            decision.reply(waiter, JoinGroupResponse(ErrorCode.member_id_required, member_id))
            return
        self._add_member(group, member_id, command, waiter, decision, now_ms)

    def _add_member(
        self,
        group: ClassicGroup,
        member_id: str,
        command: JoinGroup,
        waiter: Waiter,
        decision: GroupDecision,
        now_ms: int,
    ) -> None:
        member = ClassicMember(
            group.group_id,
            member_id,
            client=command.client,
            group_instance_id=command.group_instance_id,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            protocols=command.protocols,
        )
        member.is_new = True
        group.has_new_member = group.has_new_member or group.is_in_initial_rebalance
        if not group.members:
            group.protocol_type = command.protocol_type
        group.add(member)
        group.await_join(member, waiter, decision)
        member.restart_session(decision, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancer.begin_or_proceed(group, decision, now_ms)

    def _replace_static(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        command: JoinGroup,
        waiter: Waiter,
        decision: GroupDecision,
        now_ms: int,
    ) -> None:
        """KIP-345: a static member that restarts gets a new member id. If the group is stable and its protocol does not
        change, the member keeps its assignment and the generation continues.
        """
        old_leader_id = group.leader_id
        member = group.replace_static_member(old, command.new_member_id, decision)
        _update(group, member, command)
        member.restart_session(decision)
        if group.state is not STABLE or group.select_protocol() != group.protocol_name:
            group.await_join(member, waiter, decision)
            self._rebalancer.begin_or_proceed(group, decision, now_ms)
            return
        group.compute_subscribed_topics()
        group.write(decision)
        is_leader = group.leader_id == member.member_id
        if command.can_skip_assignment:
            # KIP-814: the leader must know that it leads, to watch the topics' metadata, but must not assign again.
            response = group.join_response(member.member_id, with_members=is_leader)
            decision.reply(waiter, response._replace(skip_assignment=is_leader))
        else:
            # A client that cannot skip the assignment must not learn that it is the leader: it would assign again.
            response = group.join_response(member.member_id, with_members=False)
            decision.reply(waiter, response._replace(leader=old_leader_id or ""))

    # -- with a member id

    def _join_with_id(
        self, group: ClassicGroup, command: JoinGroup, waiter: Waiter, decision: GroupDecision, now_ms: int
    ) -> None:
        member_id = command.member_id
        if member_id in group.pending_members and command.group_instance_id is None:
            self._add_member(group, member_id, command, waiter, decision, now_ms)
            return
        member = group.check_member(member_id, command.group_instance_id)
        is_leader = group.leader_id == member_id
        is_unchanged = member.protocols == distinct_protocols(command.protocols)
        # A leader that rejoins a stable group wants to assign again, for example because the topics have changed.
        if is_unchanged and (
            group.state is COMPLETING_REBALANCE or (group.state is STABLE and not is_leader)
        ):
            # It may have missed the response to its last JoinGroup.
            decision.reply(waiter, group.join_response(member_id, with_members=is_leader))
            return
        _update(group, member, command)
        group.await_join(member, waiter, decision)
        self._rebalancer.begin_or_proceed(group, decision, now_ms)


def _update(group: ClassicGroup, member: ClassicMember, command: JoinGroup) -> None:
    group.update(member, command.protocols, command.rebalance_timeout_ms, command.session_timeout_ms)


def check_session_timeout(command: JoinGroup, settings: GroupSettings) -> None:
    low, high = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not low <= command.session_timeout_ms <= high:
        raise KafkaError(
            ErrorCode.invalid_session_timeout,
            f"The session timeout of {command.session_timeout_ms} ms is not between {low} and {high} ms: see "
            "group.min.session.timeout.ms and group.max.session.timeout.ms.",
        )


def inconsistent_protocols(command: JoinGroup) -> KafkaError:
    names = ", ".join(name for name, _ in command.protocols) or "none"
    return KafkaError(
        ErrorCode.inconsistent_group_protocol,
        f"Group {command.group_id} has members that share no protocol with type {command.protocol_type!r} and "
        f"protocols {names}: give all its members the same type and one assignor in common.",
    )
