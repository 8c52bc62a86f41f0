"""The reconciliation of a member with its target, one step per heartbeat (KIP-848).

A partition is revoked before it is assigned: its present owner is asked to revoke it, and confirms by no longer listing
it among its owned partitions. The next owner waits until then.
"""

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from ottla.core.groups.commands import TopicIdPartitions
from ottla.core.groups.consumer.member import Assigned, ConsumerGroupMember, MemberState

_NO_PARTITIONS: frozenset[int] = frozenset()


class Reconciliation(NamedTuple):
    """The input of one step. `owned` has the partitions that the member reports; None if it did not report them.

    `subscribed` has the ids of the subscribed topics; the target may be older than the subscription.
    `is_owned` tells whether any member, including this one, has the partition.
    """

    assignment_epoch: int
    target: Mapping[UUID, frozenset[int]]
    subscribed: Set[UUID]
    subscription_changed: bool
    is_owned: Callable[[UUID, int], bool]
    owned: tuple[TopicIdPartitions, ...] | None

    def step(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The member after this heartbeat; the same object if nothing changes."""
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch != self.assignment_epoch:
                    return self._next_assignment(member, member.member_epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._owns_any(member.pending_revocation):
                    return self._next_assignment(member, member.member_epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next_assignment(member, member.member_epoch)
            case _:
                return self._next_assignment(member, self.assignment_epoch)

    def _owns_any(self, revoked: Assigned) -> bool:
        """A member that does not report its owned partitions still owns them."""
        if self.owned is None:
            return True
        return any(
            not revoked[topic_id].keys().isdisjoint(partitions)
            for topic_id, partitions in self.owned
            if topic_id in revoked
        )

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Revokes partitions of unsubscribed topics at once, because the new target may take a while."""
        left = {
            topic_id: of_topic
            for topic_id, of_topic in member.assigned.items()
            if topic_id in self.subscribed
        }
        if len(left) == len(member.assigned):
            return member
        revoked = dict(member.pending_revocation)
        for topic_id, of_topic in member.assigned.items():
            if topic_id not in self.subscribed:
                revoked[topic_id] = {**revoked.get(topic_id, {}), **of_topic}
        if self._owns_any(revoked):
            return member.at_epoch(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, left, revoked)
        return member.at_epoch(member.member_epoch, member.state, left, member.pending_revocation)

    def _next_assignment(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        assigned: dict[UUID, Mapping[int, int]] = {}
        revoked: dict[UUID, Mapping[int, int]] = {}
        added: dict[UUID, set[int]] = {}
        waits = False
        for topic_id in dict.fromkeys((*self.target, *member.assigned)):
            target = (
                self.target.get(topic_id, _NO_PARTITIONS) if topic_id in self.subscribed else _NO_PARTITIONS
            )
            current = member.assigned.get(topic_id, {})
            kept = {partition: since for partition, since in current.items() if partition in target}
            if kept:
                assigned[topic_id] = kept
            if len(kept) < len(current):
                revoked[topic_id] = {
                    partition: since for partition, since in current.items() if partition not in kept
                }
            new = {partition for partition in target if partition not in kept}
            free = {partition for partition in new if self._is_free(member, topic_id, partition)}
            waits = waits or len(free) < len(new)
            if free:
                added[topic_id] = free

        if revoked and self._owns_any(revoked):
            return member.at_epoch(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
        for topic_id, free in added.items():
            # The epoch of the assignment: only a member that had the partition then may commit with it (KIP-1251).
            assigned[topic_id] = {
                **assigned.get(topic_id, {}),
                **dict.fromkeys(sorted(free), self.assignment_epoch),
            }
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return member.at_epoch(self.assignment_epoch, state, assigned)

    def _is_free(self, member: ConsumerGroupMember, topic_id: UUID, partition: int) -> bool:
        """A partition that the member itself has just revoked is free for it, because no other member can have it."""
        return not self.is_owned(topic_id, partition) or partition in member.pending_revocation.get(
            topic_id, {}
        )
