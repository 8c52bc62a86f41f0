"""`range`: splits each topic into ranges of partitions, the first for the first member and so on.

Topics with the same number of partitions and the same subscribers are split in the same way, so that a member has the
same partition numbers of each (co-partitioning, for joins). The assignor keeps no state: the same members give the same
assignment.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from uuid import UUID

from ottla.core.groups.assignors.draft import sorted_members, topic_subscribers
from ottla.core.groups.assignors.spec import GroupAssignment, GroupSpec, MemberSpec
from ottla.core.groups.state import TopicInfo


class RangeAssignor:
    """With racks, members get the same number of partitions, the same ones in co-partitioned topics, but first those
    with a replica in their rack (as in KIP-881).
    """

    name = "range"

    def assign(self, group: GroupSpec, topics: Mapping[UUID, TopicInfo]) -> GroupAssignment:
        members = sorted_members(group)
        alike: dict[tuple[int, tuple[int, ...]], list[TopicInfo]] = {}
        for topic, numbers in topic_subscribers(group, members, topics):
            alike.setdefault((topic.num_partitions, tuple(numbers)), []).append(topic)
        target: GroupAssignment = {member.member_id: {} for member in members}
        for (num_partitions, who), co_partitioned in alike.items():
            subscribers = [members[number] for number in who]
            for member, partitions in _split(num_partitions, subscribers, co_partitioned):
                has = frozenset(partitions)
                if has:
                    target[member.member_id].update((topic.topic_id, has) for topic in co_partitioned)
        return target


def _split(
    num_partitions: int, subscribers: Sequence[MemberSpec], topics: Sequence[TopicInfo]
) -> Iterator[tuple[MemberSpec, Sequence[int]]]:
    quota, extras = divmod(num_partitions, len(subscribers))
    quotas = [quota + (place < extras) for place in range(len(subscribers))]
    by_racks = _group_by_racks(num_partitions, subscribers, topics)
    near = _assign_in_rack(subscribers, quotas, by_racks) if by_racks else [[] for _ in subscribers]
    taken = {partition for partitions in near for partition in partitions}
    rest = [partition for partition in range(num_partitions) if partition not in taken]
    start = 0
    for member, wanted, has in zip(subscribers, quotas, near, strict=True):
        end = start + wanted - len(has)
        yield member, [*has, *rest[start:end]]
        start = end


def _group_by_racks(
    num_partitions: int, subscribers: Sequence[MemberSpec], topics: Sequence[TopicInfo]
) -> dict[frozenset[str], list[int]] | None:
    """The partitions by the members' racks in which all topics have a replica; None if racks make no difference."""
    member_racks = frozenset(member.rack_id for member in subscribers if member.rack_id is not None)
    if not member_racks or not all(topic.racks for topic in topics):
        return None
    by_racks: dict[frozenset[str], list[int]] = {}
    for partition in range(num_partitions):
        racks = member_racks.intersection(*(topic.racks[partition] for topic in topics))
        by_racks.setdefault(racks, []).append(partition)
    return by_racks if len(by_racks) > 1 or member_racks not in by_racks else None


def _assign_in_rack(
    subscribers: Sequence[MemberSpec], quotas: Sequence[int], by_racks: Mapping[frozenset[str], list[int]]
) -> list[list[int]]:
    """Partitions with few racks to choose from are assigned first."""
    near: list[list[int]] = [[] for _ in subscribers]
    for racks, partitions in sorted(by_racks.items(), key=lambda pair: (len(pair[0]), sorted(pair[0]))):
        left = iter(partitions)
        for place, member in enumerate(subscribers):
            if member.rack_id in racks:
                near[place].extend(islice(left, quotas[place] - len(near[place])))
    return near
