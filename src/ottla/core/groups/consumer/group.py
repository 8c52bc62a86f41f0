"""A group of the consumer protocol (KIP-848): its members, epochs, target assignment and partition owners."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from ottla.core.groups.commands import ListedGroup, OffsetCommit, OffsetFetch, TxnOffsetCommit
from ottla.core.groups.consumer import offset_checks
from ottla.core.groups.consumer.member import Assigned, ConsumerGroupMember
from ottla.core.groups.consumer.subscriptions import ResolvedRegex, Subscriptions, add_counts
from ottla.core.groups.group import GroupDecision, OffsetExpiry
from ottla.core.groups.state import GroupsState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

_PROTOCOL_TYPE = "consumer"
Target = Mapping[UUID, frozenset[int]]
_NO_TARGET: Target = {}


class ConsumerGroup:
    """Changed only by replaying records, except for the volatile fields.

    The group epoch grows with every change that needs a new target; the assignment epoch is that of the target.
    """

    def __init__(self, group_id: str, state: GroupsState) -> None:
        self.group_id = group_id
        self.group_epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Target] = {}

        # Derived from the fields above.
        self.subscriptions = Subscriptions()
        self.static_members: dict[str, str] = {}
        self.assignors: dict[str, int] = {}
        self.num_classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        self._owners: dict[UUID, dict[int, str]] = {}

        # Volatile: computed again after a reload.
        self.topics_version = -1  # of the metadata with which the hash was last compared
        self.regexes_version = -1
        self.regexes_timestamp_ms = 0
        self.has_assignment_timer = False
        self._state = state

    # -- queries

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        """Whether a member has the partition, or has not confirmed its revocation yet."""
        return partition in self._owners.get(topic_id, ())

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> Target:
        return self.targets.get(member_id, _NO_TARGET)

    # -- changes by records

    def put_member(self, member: ConsumerGroupMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.metadata is not member.metadata:
            if old is not None:
                self._uncount(old)
            self._count(member)
        if (
            old is None
            or old.assigned is not member.assigned
            or old.pending_revocation is not member.pending_revocation
        ):
            self._move_partitions(old, member)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._uncount(member)
            self._release(member)

    def put_target(self, member_id: str, target: Target | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        self.subscriptions.resolve(regex, resolved)
        if resolved is not None:
            self.regexes_version = resolved.version
            self.regexes_timestamp_ms = resolved.timestamp_ms

    def _count(self, member: ConsumerGroupMember) -> None:
        self.subscriptions.add(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.metadata.server_assignor is not None:
            add_counts(self.assignors, (member.metadata.server_assignor,), 1)
        if member.classic_member_metadata is not None:
            self.num_classic_members += 1
            protocols = member.classic_member_metadata.supported_protocols
            add_counts(self.classic_protocols, (protocol.name for protocol in protocols), 1)

    def _uncount(self, member: ConsumerGroupMember) -> None:
        self.subscriptions.remove(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if member.metadata.server_assignor is not None:
            add_counts(self.assignors, (member.metadata.server_assignor,), -1)
        if member.classic_member_metadata is not None:
            self.num_classic_members -= 1
            protocols = member.classic_member_metadata.supported_protocols
            add_counts(self.classic_protocols, (protocol.name for protocol in protocols), -1)

    def _move_partitions(self, old: ConsumerGroupMember | None, member: ConsumerGroupMember) -> None:
        if old is not None:
            self._release(old)
        self._own(member, member.assigned)
        self._own(member, member.pending_revocation)

    def _own(self, member: ConsumerGroupMember, partitions: Assigned) -> None:
        """The latest record wins: a partly compacted log may still have an older record of another member."""
        for topic_id, of_topic in partitions.items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(of_topic, member.member_id))

    def _release(self, member: ConsumerGroupMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, of_topic in partitions.items():
                _drop(self._owners, topic_id, of_topic, member.member_id)

    # -- the interface of a group

    def check_offset_commit(
        self, command: OffsetCommit | TxnOffsetCommit, decision: GroupDecision, now_ms: int
    ) -> None:
        """Does not restart the session: in this protocol only heartbeats do."""
        offset_checks.check_commit(self, self._state.topics, command)

    def check_offset_fetch(self, command: OffsetFetch) -> None:
        offset_checks.check_fetch(self, command)

    def check_offset_delete(self) -> None:
        """Offsets of topics without subscribers may be deleted at any time."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def offset_expiry(self) -> OffsetExpiry | None:
        return OffsetExpiry(since_ms=None)

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(
                ErrorCode.non_empty_group,
                f"Group {self.group_id} has {len(self.members)} members: stop them first.",
            )

    def write_tombstones(self, decision: GroupDecision) -> None:
        """The group's own record comes last, so that after it nothing of the group is left."""
        group_id = self.group_id
        members = tuple(self.members)
        for member_id in members:
            decision.write(
                ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
            )
        for member_id in members:
            decision.write(
                ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
            )
        decision.write(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
        for member_id in members:
            decision.write(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)
        for regex in tuple(self.subscriptions.resolved):
            key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            decision.write(key, None)
        decision.write(ConsumerGroupMetadataKey(group_id=group_id), None)

    def as_listed_group(self) -> ListedGroup:
        return ListedGroup(self.group_id, _PROTOCOL_TYPE, self.state, "consumer")

    # -- for tests

    def durable_state(self) -> dict[str, Any]:
        return {
            "group_epoch": self.group_epoch,
            "metadata_hash": self.metadata_hash,
            "assignment_epoch": self.assignment_epoch,
            "assignment_timestamp_ms": self.assignment_timestamp_ms,
            "members": dict(self.members),
            "targets": dict(self.targets),
            "resolved": dict(self.subscriptions.resolved),
            "owners": {topic_id: dict(owners) for topic_id, owners in self._owners.items()},
            "static_members": dict(self.static_members),
            "counts": (
                dict(self.subscriptions.by_name),
                dict(self.subscriptions.by_regex),
                dict(self.subscriptions.by_resolved),
                dict(self.assignors),
                self.num_classic_members,
                dict(self.classic_protocols),
            ),
        }

    def validate(self) -> None:
        assert self.assignment_epoch <= self.group_epoch, f"{self.group_id}: the target is of a later epoch"
        assert self.targets.keys() <= self.members.keys(), f"{self.group_id}: a target has no member"
        assert self.subscriptions.resolved.keys() <= self.subscriptions.by_regex.keys(), (
            f"{self.group_id}: a resolved regular expression has no subscriber"
        )
        owners: dict[UUID, dict[int, str]] = {}
        for member in self.members.values():
            assert member.member_epoch <= self.assignment_epoch, f"{member.member_id} is ahead of its group"
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, of_topic in partitions.items():
                    for partition in of_topic:
                        previous = owners.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                        assert previous == member.member_id, f"{topic_id}-{partition} has two owners"
        assert owners == self._owners, f"{self.group_id}: the owners differ from the members' assignments"
        target_owners: dict[UUID, dict[int, str]] = {}
        for member_id, target in self.targets.items():
            for topic_id, targeted in target.items():
                for partition in targeted:
                    previous = target_owners.setdefault(topic_id, {}).setdefault(partition, member_id)
                    assert previous == member_id, f"{topic_id}-{partition} is the target of two members"
        for instance_id, member_id in self.static_members.items():
            assert self.members[member_id].instance_id == instance_id, f"{instance_id} is not {member_id}"


def _drop(
    owners: dict[UUID, dict[int, str]], topic_id: UUID, partitions: Iterable[int], member_id: str
) -> None:
    """Removes the member as the owner, unless another member owns the partition by now."""
    of_topic = owners.get(topic_id, {})
    for partition in partitions:
        if of_topic.get(partition) == member_id:
            del of_topic[partition]
    if not of_topic:
        owners.pop(topic_id, None)
