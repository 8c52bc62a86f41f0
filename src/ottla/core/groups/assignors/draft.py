"""An assignment under construction, in which members are numbers, in the order of `sorted_members`.

Nothing depends on the iteration order of a set: members and topics are sorted, and partitions are numbers.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from uuid import UUID

from ottla.core.groups.assignors.spec import GroupAssignment, GroupSpec, MemberSpec
from ottla.core.groups.state import TopicInfo

NOBODY = -1


def sorted_members(group: GroupSpec) -> list[MemberSpec]:
    """Static members by instance id, then the others by member id. So a static member that comes back with a new member
    id (KIP-345) keeps its place.
    """
    return sorted(
        group.members.values(),
        key=lambda member: (member.instance_id is None, member.instance_id or "", member.member_id),
    )


def topic_subscribers(
    group: GroupSpec, members: list[MemberSpec], topics: Mapping[UUID, TopicInfo]
) -> list[tuple[TopicInfo, list[int]]]:
    """The existing topics, sorted by name, with their subscribers. In a homogeneous group all share one list."""
    subscribers: dict[UUID, list[int]] = {}
    if group.is_homogeneous and members:
        all_members = list(range(len(members)))
        subscribers = dict.fromkeys(members[0].topic_ids, all_members)
    else:
        for number, member in enumerate(members):
            for topic_id in member.topic_ids:
                subscribers.setdefault(topic_id, []).append(number)
    found = [(topics[topic_id], numbers) for topic_id, numbers in subscribers.items() if topic_id in topics]
    return sorted(found, key=lambda pair: pair[0].name)


def is_in_rack(member: MemberSpec, topic: TopicInfo, partition: int) -> bool:
    """Whether a replica of the partition is in the member's rack; False if either has no rack."""
    return bool(topic.racks) and member.rack_id in topic.racks[partition]


class Draft:
    """The owner of each partition so far, and the number of partitions of each member."""

    def __init__(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> None:
        """Starts with the partitions that members have and may keep: of existing topics that they subscribe to."""
        self.members = sorted_members(group)
        found = topic_subscribers(group, self.members, topics)
        self.topics = {topic.topic_id: topic for topic, _ in found}
        self.subscribers = {topic.topic_id: numbers for topic, numbers in found}
        self.owners = {topic.topic_id: [NOBODY] * topic.num_partitions for topic, _ in found}
        self.loads = [0] * len(self.members)
        for number, member in enumerate(self.members):
            self._keep(number, member)
        self.previous_owners = {topic_id: owners.copy() for topic_id, owners in self.owners.items()}

    def _keep(self, number: int, member: MemberSpec) -> None:
        for topic_id, partitions in member.assigned.items():
            owners = self.owners.get(topic_id)
            if owners is None or topic_id not in member.topic_ids:
                continue
            for partition in partitions:
                if partition < len(owners) and owners[partition] == NOBODY:
                    owners[partition] = number
                    self.loads[number] += 1

    def give(self, topic_id: UUID, partition: int, number: int) -> None:
        """Gives a partition to a member, taking it from its present owner if it has one."""
        owners = self.owners[topic_id]
        if owners[partition] != NOBODY:
            self.loads[owners[partition]] -= 1
        owners[partition] = number
        self.loads[number] += 1

    def take(self, topic_id: UUID, partition: int) -> None:
        self.loads[self.owners[topic_id][partition]] -= 1
        self.owners[topic_id][partition] = NOBODY

    def is_in_rack(self, topic: TopicInfo, partition: int) -> bool:
        """Whether the partition's owner is in the rack of one of its replicas."""
        return is_in_rack(self.members[self.owners[topic.topic_id][partition]], topic, partition)

    def assignment(self) -> GroupAssignment:
        found: list[dict[UUID, list[int]]] = [{} for _ in self.members]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
        return {
            member.member_id: {topic_id: frozenset(partitions) for topic_id, partitions in has.items()}
            for member, has in zip(self.members, found, strict=True)
        }


def assign_free_partitions(draft: Draft, topics: Iterable[TopicInfo]) -> None:
    """Gives each partition without an owner to the subscriber with the fewest, which also spreads the partitions of a
    topic.
    """
    loads = draft.loads
    heap: list[tuple[int, int]] = []
    heap_of: list[int] | None = None
    for topic in topics:
        owners, subscribers = draft.owners[topic.topic_id], draft.subscribers[topic.topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NOBODY]
        if free and subscribers is not heap_of:
            heap, heap_of = [(loads[number], number) for number in subscribers], subscribers
            heapify(heap)
        for partition in free:
            load, number = heap[0]
            heapreplace(heap, (load + 1, number))
            owners[partition] = number
            loads[number] = load + 1
