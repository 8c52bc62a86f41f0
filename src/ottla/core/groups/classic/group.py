"""A classic group: its members, what they have in common, and what the shard asks of a group of any type.

What happens to it is decided in the modules beside this one. What must survive a restart is `written`: the group as it
was when it last became stable or empty. A rebalance that a restart interrupts is begun anew by the members.
"""

from collections.abc import Collection

from kio.static.primitive import i32, i64

from ottla.core.coordination import Waiter
from ottla.core.groups.classic.member import ClassicMember, Protocols, distinct_protocols
from ottla.core.groups.classic.states import VALID_PREVIOUS_STATES, ClassicGroupState
from ottla.core.groups.commands import (
    Client,
    DescribedGroup,
    JoinGroupMember,
    JoinGroupResponse,
    ListedGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroupResponse,
    TxnOffsetCommit,
)
from ottla.core.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE, read_subscribed_topics
from ottla.core.groups.group import GroupDecision, OffsetExpiry
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

EMPTY = ClassicGroupState.EMPTY
PREPARING_REBALANCE = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD


class ClassicGroup:
    """As made here it is a simple group: nobody has joined it, it only holds offsets that others committed."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms: int | None = None
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # KIP-345: member ids by group instance id
        self.pending_members: dict[str, None] = {}  # KIP-394: were given an id, have not joined with it yet
        self.pending_sync: dict[
            str, None
        ] = {}  # have joined this generation, have not asked for their assignment
        self.num_awaiting_join = 0
        self.has_new_member = False  # since the initial rebalance was last delayed
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.written: GroupMetadataValue | None = None
        self._supporters: dict[str, int] = {}  # how many members support a protocol

    # -- records

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        group = cls(group_id)
        group.state = STABLE if value.members else EMPTY
        group.generation_id = value.generation
        group.leader_id = value.leader
        group.state_timestamp_ms = (
            None if value.current_state_timestamp == -1 else value.current_state_timestamp
        )
        for member in value.members:
            group.add(
                ClassicMember(
                    group_id,
                    member.member_id,
                    client=Client(member.client_id, member.client_host),
                    group_instance_id=member.group_instance_id,
                    rebalance_timeout_ms=member.rebalance_timeout,
                    session_timeout_ms=member.session_timeout,
                    protocols=((value.protocol or "", member.subscription),),
                    assignment=member.assignment,
                ),
                value.protocol_type,
            )
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.learn_subscribed_topics()
        group.written = value
        return group

    def snapshot(self) -> GroupMetadataValue:
        protocol_name = self.protocol_name
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=i32(self.generation_id),
            protocol=protocol_name,
            leader=self.leader_id,
            current_state_timestamp=i64(-1 if self.state_timestamp_ms is None else self.state_timestamp_ms),
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client.client_id,
                    client_host=member.client.client_host,
                    rebalance_timeout=i32(member.rebalance_timeout_ms),
                    session_timeout=i32(member.session_timeout_ms),
                    subscription=member.metadata(protocol_name or ""),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def write(self, decision: GroupDecision) -> None:
        self.written = self.snapshot()
        decision.write_only(GroupMetadataKey(group=self.group_id), self.written)

    def write_tombstones(self, decision: GroupDecision) -> None:
        decision.write(GroupMetadataKey(group=self.group_id), None)

    # -- states

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], (
            f"group {self.group_id} cannot go from {self.state.value} to {state.value}"
        )
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_rebalancing(self) -> bool:
        """Whether its members are to rejoin: a heartbeat is told so."""
        return self.state is PREPARING_REBALANCE

    @property
    def is_in_initial_rebalance(self) -> bool:
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    @property
    def has_everyone_joined(self) -> bool:
        return self.num_awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def start_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    # -- members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str, decision: GroupDecision) -> None:
        """Whether it is a member, or only has been given an id. What it waits for is answered: it is unknown now."""
        member = self.members.get(member_id)
        if member is not None:
            self.answer_join(member, JoinGroupResponse(ErrorCode.unknown_member_id, ""), decision)
            self.answer_sync(member, unknown_member(self.group_id, member_id), decision)
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
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = (
            rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms
        )

    def replace_static_member(
        self, old: ClassicMember, new_id: str, decision: GroupDecision
    ) -> ClassicMember:
        """KIP-345: the instance has restarted. Who still speaks under the old member id is fenced."""
        fenced = JoinGroupResponse(ErrorCode.fenced_instance_id, old.member_id)
        self.answer_join(old, fenced, decision)
        self.answer_sync(old, fenced_instance(self.group_id, old.group_instance_id, old.member_id), decision)
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
        """Keeps the leader if it has rejoined, else takes the first member that has. False: nobody has."""
        if self.leader_id is not None and self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def check_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another member has taken the instance over."""
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

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be with the others."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self.members) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Each member votes for the protocol that it likes most among those that all support."""
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

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def learn_subscribed_topics(self) -> None:
        """What cannot be read is not known: then every topic counts as subscribed."""
        self.subscribed_topics = None
        if not self.is_of_consumers or (self.members and self.protocol_name is None):
            return
        subscribed: set[str] = set()
        for member in self.members.values():
            topics = read_subscribed_topics(member.metadata(self.protocol_name or ""))
            if topics is None:
                return
            subscribed.update(topics)
        self.subscribed_topics = frozenset(subscribed)

    # -- answers

    def await_join(self, member: ClassicMember, waiter: Waiter, decision: GroupDecision) -> None:
        """A JoinGroup that was waiting already has been given up by its sender, who asks again."""
        given_up = f"Member {member.member_id} of group {self.group_id} has sent another JoinGroup: this one is void."
        self.answer_join(member, KafkaError(ErrorCode.rebalance_in_progress, given_up), decision)
        member.awaiting_join = waiter
        self.num_awaiting_join += 1

    def answer_join(
        self, member: ClassicMember, response: JoinGroupResponse | KafkaError, decision: GroupDecision
    ) -> None:
        if member.awaiting_join is not None:
            decision.reply(member.awaiting_join, response)
            member.awaiting_join = None
            self.num_awaiting_join -= 1

    def await_sync(self, member: ClassicMember, waiter: Waiter, decision: GroupDecision) -> None:
        self.answer_sync(member, rebalance_in_progress(self.group_id), decision)
        member.awaiting_sync = waiter

    def answer_sync(
        self, member: ClassicMember, response: SyncGroupResponse | KafkaError, decision: GroupDecision
    ) -> None:
        if member.awaiting_sync is not None:
            decision.reply(member.awaiting_sync, response)
            member.awaiting_sync = None

    def joined(self, member_id: str, with_members: bool) -> JoinGroupResponse:
        """The current generation, as a member is told it; the leader gets the members, to assign to them."""
        return JoinGroupResponse(
            ErrorCode.none,
            member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            members=self.joined_members() if with_members else (),
        )

    def joined_members(self) -> tuple[JoinGroupMember, ...]:
        return tuple(
            JoinGroupMember(
                member.member_id, member.group_instance_id, member.metadata(self.protocol_name or "")
            )
            for member in self.members.values()
        )

    def synced(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(member.assignment, self.protocol_type, self.protocol_name)

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, "Classic")

    def described(self) -> DescribedGroup:
        protocol_name = self.protocol_name if self.state is STABLE else None
        members = tuple(member.described(protocol_name) for member in self.members.values())
        return DescribedGroup(
            self.group_id, self.state.value, self.protocol_type or "", protocol_name or "", members
        )

    # -- offsets

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        """Who is no member may commit while the group is empty. A transaction's commit may come from a producer that
        knows neither member nor generation (before KIP-447).
        """
        if isinstance(command, TxnOffsetCommit):
            self._check_committer(command.member_id, command.group_instance_id, command.generation_id, True)
            return
        generation_id = command.generation_or_member_epoch
        self._check_committer(command.member_id, command.group_instance_id, generation_id, False)
        if self.state is COMPLETING_REBALANCE:
            raise rebalance_in_progress(self.group_id)
        if self.state is not EMPTY:
            self.members[command.member_id].restart_session(decision)

    def _check_committer(
        self, member_id: str, group_instance_id: str | None, generation_id: int, is_transactional: bool
    ) -> None:
        if generation_id < 0 and self.state is EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            self.check_generation(generation_id)
        elif not is_transactional and self.state is not EMPTY:
            raise unknown_member(self.group_id, member_id)

    def check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise KafkaError(
                ErrorCode.illegal_generation,
                f"Group {self.group_id} is in generation {self.generation_id}, not {generation_id}: rejoin it.",
            )

    def check_offset_fetch(self, command: OffsetFetch) -> None:
        """Anyone may read the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        if self.state is not EMPTY and not self.is_of_consumers:
            raise self._non_empty()

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def offset_expiry(self) -> OffsetExpiry | None:
        if self.protocol_type is None:
            return OffsetExpiry(None)
        if self.state is EMPTY:
            return OffsetExpiry(self.state_timestamp_ms)
        if self.state is STABLE and self.is_of_consumers and self.subscribed_topics is not None:
            return OffsetExpiry(None)
        return None

    def check_delete(self) -> None:
        if self.state is not EMPTY:
            raise self._non_empty()

    def _non_empty(self) -> KafkaError:
        return KafkaError(
            ErrorCode.non_empty_group,
            f"Group {self.group_id} has {len(self.members)} members (state {self.state.value}): stop them first.",
        )

    # -- invariants

    def validate(self) -> None:
        members = self.members.values()
        assert self.num_awaiting_join == sum(m.awaiting_join is not None for m in members)
        assert not self.members.keys() & self.pending_members.keys(), "a member is pending as well"
        assert self.pending_sync.keys() <= self.members.keys(), "who is not a member is to sync"
        static = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        assert static == self.static_members, f"{static} != {self.static_members}"
        assert (self.leader_id in self.members) == bool(self.members), f"leader {self.leader_id} is no member"
        assert self._supporters == _count_names(members), "the votes are miscounted"
        if self.members:
            assert self.select_protocol(), "the members have no protocol in common"
        if self.state is EMPTY:
            assert not self.members, "an empty group has members"
        if self.state in (COMPLETING_REBALANCE, STABLE):
            assert self.members, f"the group is {self.state.value}, but has no members"
            assert self.protocol_name is not None
            assert self.num_awaiting_join == 0, "a member waits for a join that nobody prepares"
        if self.state is not COMPLETING_REBALANCE:
            assert all(m.awaiting_sync is None for m in members), "a member waits for a sync that is over"
        if self.state in (EMPTY, STABLE) and self.written is not None:
            assert self.snapshot() == self.written, (
                f"{self.snapshot()} is not what was written: {self.written}"
            )


def _count_names(members: Collection[ClassicMember]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for member in members:
        for name, _ in member.protocols:
            counts[name] = counts.get(name, 0) + 1
    return counts


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.unknown_member_id,
        f"Group {group_id} has no member {member_id!r}: join it anew, without a member id.",
    )


def fenced_instance(group_id: str, group_instance_id: str | None, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"Group instance {group_instance_id} of group {group_id} has another member id than {member_id!r} by now: "
        "two consumers have the same group.instance.id, stop one of them.",
    )


def rebalance_in_progress(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.rebalance_in_progress, f"Group {group_id} rebalances: rejoin it.")
