"""The members of a classic group: joined and pending members, the leader, and the protocols that all support."""

from collections.abc import Iterable

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.errors import fenced_instance, rebalance_in_progress, unknown_member
from ottla.core.groups.classic.member import ClassicMember, Protocols, distinct_protocols
from ottla.core.groups.commands import JoinGroupResponse, SyncGroupResponse
from ottla.core.groups.group import GroupDecision
from ottla.model.errors import ErrorCode, KafkaError


class Membership:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # KIP-345: member ids by group instance id
        self.pending_members: dict[str, None] = {}  # KIP-394: have got an id, but have not joined with it yet
        self.pending_sync: dict[str, None] = {}  # have joined this generation, but have not sent SyncGroup
        self.num_awaiting_join = 0
        self._supporters: dict[str, int] = {}  # the number of members that support each protocol

    @property
    def has_everyone_joined(self) -> bool:
        return self.num_awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: ClassicMember) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str, decision: GroupDecision) -> None:
        """Removes a member or a pending member. Its waiting requests get UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is not None:
            self.respond_to_join(member, JoinGroupResponse(ErrorCode.unknown_member_id, ""), decision)
            self.respond_to_sync(member, unknown_member(self.group_id, member_id), decision)
            member.end_session(decision)
            del self.members[member_id]
            self._count_protocols(member.protocols, -1)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count_protocols(member.protocols, -1)
        member.protocols = distinct_protocols(protocols)
        self._count_protocols(member.protocols, 1)
        member.set_timeouts(rebalance_timeout_ms, session_timeout_ms)

    def replace_static_member(
        self, old: ClassicMember, new_id: str, decision: GroupDecision
    ) -> ClassicMember:
        """KIP-345: the instance has restarted. Fences requests with the old member id."""
        fenced = JoinGroupResponse(ErrorCode.fenced_instance_id, old.member_id)
        self.respond_to_join(old, fenced, decision)
        self.respond_to_sync(
            old, fenced_instance(self.group_id, old.group_instance_id, old.member_id), decision
        )
        old.end_session(decision)
        new = ClassicMember(
            self.group_id,
            new_id,
            client=old.client,
            group_instance_id=old.group_instance_id,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        del self.members[old.member_id]
        self.members[new_id] = new
        if old.group_instance_id is not None:
            self.static_members[old.group_instance_id] = new_id
        if self.leader_id == old.member_id:
            self.leader_id = new_id
        if old.member_id in self.pending_sync:
            del self.pending_sync[old.member_id]
            self.pending_sync[new_id] = None
        return new

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has rejoined, else takes the first member that has. False if none has."""
        if self.leader_id is not None and self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has taken over the instance."""
        if group_instance_id is not None:
            current_id = self.static_members.get(group_instance_id)
            if current_id is None:
                raise unknown_member(self.group_id, member_id)
            if current_id != member_id:
                raise fenced_instance(self.group_id, group_instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(self.group_id, member_id)
        return member

    # -- common protocols

    def has_common_protocol(self, protocols: Protocols) -> bool:
        """Whether one of these protocols is supported by all members."""
        return any(self._supporters.get(name, 0) == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Each member votes for its most preferred protocol of those that all members support."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_protocols(self, protocols: Protocols, difference: int) -> None:
        for name, _ in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + difference
            if not self._supporters[name]:
                del self._supporters[name]

    # -- waiting requests

    def await_join(self, member: ClassicMember, waiter: Waiter, decision: GroupDecision) -> None:
        """The sender has given up an earlier JoinGroup that still waits."""
        replaced = (
            f"Member {member.member_id} of group {self.group_id} has sent another JoinGroup in place of this."
        )
        self.respond_to_join(member, KafkaError(ErrorCode.rebalance_in_progress, replaced), decision)
        member.awaiting_join = waiter
        self.num_awaiting_join += 1

    def respond_to_join(
        self, member: ClassicMember, response: JoinGroupResponse | KafkaError, decision: GroupDecision
    ) -> None:
        if member.awaiting_join is not None:
            decision.reply(member.awaiting_join, response)
            member.awaiting_join = None
            self.num_awaiting_join -= 1

    def await_sync(self, member: ClassicMember, waiter: Waiter, decision: GroupDecision) -> None:
        self.respond_to_sync(member, rebalance_in_progress(self.group_id), decision)
        member.awaiting_sync = waiter

    def respond_to_sync(
        self, member: ClassicMember, response: SyncGroupResponse | KafkaError, decision: GroupDecision
    ) -> None:
        if member.awaiting_sync is not None:
            decision.reply(member.awaiting_sync, response)
            member.awaiting_sync = None

    # -- invariants

    def validate_members(self) -> None:
        members = self.members.values()
        assert self.num_awaiting_join == sum(m.awaiting_join is not None for m in members)
        assert not self.members.keys() & self.pending_members.keys(), "a member is pending as well"
        assert self.pending_sync.keys() <= self.members.keys(), "a pending sync is of no member"
        static = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        assert static == self.static_members, f"{static} != {self.static_members}"
        assert self.leader_id is None or self.leader_id in self.members, (
            f"the leader {self.leader_id} is not a member"
        )
        assert self._supporters == _count_names(members), "the supporters of protocols are miscounted"
        if self.members:
            assert self.select_protocol(), "the members have no protocol in common"


def _count_names(members: Iterable[ClassicMember]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        for name, _ in member.protocols:
            counts[name] = counts.get(name, 0) + 1
    return counts
