"""A classic group: its members, its protocol, its state, and the interface of a group of any type.

The other modules of this package change it. Only `last_written` survives a restart: the group as it was when it last
became stable or empty. If a restart interrupts a rebalance, the members start another one.
"""

from kio.static.primitive import i32, i64

from ottla.core.groups.classic.errors import rebalance_in_progress, unknown_member
from ottla.core.groups.classic.member import ClassicMember, Protocols
from ottla.core.groups.classic.membership import Membership
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


class ClassicGroup(Membership):
    """A new object is a simple group: it has no members, only offsets that were committed without joining."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms: int | None = None
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.has_new_member = False  # since the initial rebalance was last delayed
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.last_written: GroupMetadataValue | None = None

    # -- records

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        group = cls(group_id)
        group.state = STABLE if value.members else EMPTY
        group.generation_id = value.generation
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
                )
            )
        group.leader_id = value.leader
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.compute_subscribed_topics()
        group.last_written = value
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
        self.last_written = self.snapshot()
        decision.write_without_replay(GroupMetadataKey(group=self.group_id), self.last_written)

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
        """Whether its members must rejoin; heartbeats get REBALANCE_IN_PROGRESS."""
        return self.state is PREPARING_REBALANCE

    @property
    def is_in_initial_rebalance(self) -> bool:
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    def start_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)
        self.pending_sync.clear()

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join the others."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return self.has_common_protocol(protocols)

    @property
    def uses_consumer_protocol_type(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def compute_subscribed_topics(self) -> None:
        """Sets `subscribed_topics` to None, which counts as all topics, if a subscription cannot be read."""
        self.subscribed_topics = None
        if not self.uses_consumer_protocol_type or (self.members and self.protocol_name is None):
            return
        subscribed: set[str] = set()
        for member in self.members.values():
            topics = read_subscribed_topics(member.metadata(self.protocol_name or ""))
            if topics is None:
                return
            subscribed.update(topics)
        self.subscribed_topics = frozenset(subscribed)

    # -- responses

    def join_response(self, member_id: str, with_members: bool) -> JoinGroupResponse:
        """The current generation. The leader also gets the members, to assign partitions to them."""
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

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(member.assignment, self.protocol_type, self.protocol_name)

    def as_listed_group(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, "classic")

    def as_described_group(self) -> DescribedGroup:
        protocol_name = self.protocol_name if self.state is STABLE else None
        members = tuple(member.as_described_member(protocol_name) for member in self.members.values())
        return DescribedGroup(
            self.group_id, self.state.value, self.protocol_type or "", protocol_name or "", members
        )

    # -- offsets

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        """Clients that are not members may commit while the group is empty. In a transaction the producer may send
        neither member id nor generation (before KIP-447).
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
        """Any client may fetch the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        if self.state is not EMPTY and not self.uses_consumer_protocol_type:
            raise self._non_empty()

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol_type
        return topic in self.subscribed_topics

    def offset_expiry(self) -> OffsetExpiry | None:
        if self.protocol_type is None:
            return OffsetExpiry(None)
        if self.state is EMPTY:
            return OffsetExpiry(self.state_timestamp_ms)
        if self.state is STABLE and self.uses_consumer_protocol_type and self.subscribed_topics is not None:
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
        self.validate_members()
        members = self.members.values()
        if self.state is EMPTY:
            assert not self.members, "an empty group has members"
        if self.state in (COMPLETING_REBALANCE, STABLE):
            assert self.members, f"the group is {self.state.value}, but has no members"
            assert self.protocol_name is not None, "the members have chosen no protocol"
            assert self.num_awaiting_join == 0, "a member waits to join, but no rebalance is prepared"
        if self.state is COMPLETING_REBALANCE:
            assert self.leader_id is not None, "there is no leader to assign the partitions"
        else:
            assert all(m.awaiting_sync is None for m in members), "a member waits to sync after the rebalance"
        if self.state in (EMPTY, STABLE) and self.last_written is not None:
            assert self.snapshot() == self.last_written, (
                f"{self.snapshot()} is not what was written: {self.last_written}"
            )
