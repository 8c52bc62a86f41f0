"""Groups for the tests of assignors: made by hand or drawn by Hypothesis, and properties of assignments."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from hypothesis import strategies as st

from ottla.core.groups.assignors import GroupAssignment, GroupSpec, MemberSpec
from ottla.core.groups.state import TopicInfo

RACKS = ("a", "b", "c")

Topics = Mapping[UUID, TopicInfo]


def topic_id(number: int) -> UUID:
    return UUID(int=number)


def topics_of(*partition_counts: int, racks: Sequence[Sequence[str]] = ()) -> dict[UUID, TopicInfo]:
    """Topics numbered from 1; `racks` are those of each partition, the same in every topic."""
    return {
        topic_id(number): TopicInfo(
            topic_id(number),
            f"topic-{number:03}",
            count,
            tuple(frozenset(of_partition) for of_partition in racks),
        )
        for number, count in enumerate(partition_counts, 1)
    }


def member(
    member_id: str,
    subscribed: Iterable[int],
    assigned: Mapping[int, Iterable[int]] | None = None,
    *,
    instance_id: str | None = None,
    rack_id: str | None = None,
) -> MemberSpec:
    return MemberSpec(
        member_id,
        instance_id,
        rack_id,
        frozenset(topic_id(number) for number in subscribed),
        {topic_id(number): frozenset(partitions) for number, partitions in (assigned or {}).items()},
    )


def group_of(*members: MemberSpec) -> GroupSpec:
    is_homogeneous = len({member.topic_ids for member in members}) <= 1
    return GroupSpec({member.member_id: member for member in members}, is_homogeneous)


def readable(assignment: GroupAssignment) -> dict[str, dict[int, list[int]]]:
    return {
        member_id: {topic.int: sorted(partitions) for topic, partitions in sorted(has.items())}
        for member_id, has in assignment.items()
    }


def after(group: GroupSpec, assignment: GroupAssignment) -> GroupSpec:
    """The group with this assignment as its members' present one."""
    members = [has._replace(assigned=assignment[has.member_id]) for has in group.members.values()]
    return GroupSpec({member.member_id: member for member in members}, group.is_homogeneous)


def loads(assignment: GroupAssignment) -> list[int]:
    return [sum(map(len, has.values())) for has in assignment.values()]


def owners(assignment: GroupAssignment) -> dict[tuple[UUID, int], str]:
    """The owner of each partition; fails if there are two."""
    found: dict[tuple[UUID, int], str] = {}
    for member_id, has in assignment.items():
        for topic, partitions in has.items():
            assert partitions, "a topic without partitions of the member is left out"
            for partition in partitions:
                assert (topic, partition) not in found
                found[topic, partition] = member_id
    return found


def keepable(group: GroupSpec, topics: Topics) -> dict[tuple[UUID, int], str]:
    """The present owners of partitions of existing, subscribed topics."""
    return {
        (topic, partition): member.member_id
        for member in group.members.values()
        for topic, partitions in member.assigned.items()
        for partition in partitions
        if topic in member.topic_ids and topic in topics and partition < topics[topic].num_partitions
    }


def moves(group: GroupSpec, topics: Topics, assignment: GroupAssignment) -> int:
    """How many partitions are taken from members that stay and could keep them."""
    now = owners(assignment)
    return sum(now[partition] != owner for partition, owner in keepable(group, topics).items())


def in_rack_count(group: GroupSpec, topics: Topics, assignment: GroupAssignment) -> int:
    return sum(
        bool(topics[topic].racks) and group.members[owner].rack_id in topics[topic].racks[partition]
        for (topic, partition), owner in owners(assignment).items()
    )


def check_complete(group: GroupSpec, topics: Topics, assignment: GroupAssignment) -> None:
    """Every partition of an existing, subscribed topic has one owner, which subscribes to it."""
    assert set(assignment) == set(group.members)
    subscribed = {topic for member in group.members.values() for topic in member.topic_ids}
    owned = owners(assignment)
    assert set(owned) == {
        (topic, partition)
        for topic in subscribed & topics.keys()
        for partition in range(topics[topic].num_partitions)
    }
    assert all(topic in group.members[owner].topic_ids for (topic, _), owner in owned.items())


@st.composite
def clusters(draw: st.DrawFn, *, racks: bool) -> dict[UUID, TopicInfo]:
    found = {}
    for number in range(1, draw(st.integers(1, 5)) + 1):
        count = draw(st.integers(1, 9))
        of_partition = st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=2)
        partition_racks = tuple(draw(of_partition) for _ in range(count)) if racks else ()
        found[topic_id(number)] = TopicInfo(topic_id(number), f"topic-{number:03}", count, partition_racks)
    return found


@st.composite
def groups(
    draw: st.DrawFn, topics: Topics, *, is_homogeneous: bool | None = None, racks: bool = False
) -> GroupSpec:
    """Members with any subscriptions and any present partitions, balanced or not, subscribed or not."""
    subscriptions = st.frozensets(st.sampled_from([*topics, topic_id(99)]))  # 99 does not exist
    if is_homogeneous is None:
        is_homogeneous = draw(st.booleans())
    common = draw(subscriptions)
    count = draw(st.integers(1, 7))
    has: list[dict[UUID, set[int]]] = [{} for _ in range(count)]
    for topic in topics.values():
        # Up to two partitions more than exist: a topic can be created again with fewer.
        for partition in range(topic.num_partitions + 2):
            owner = draw(st.integers(-2, count - 1))
            if owner >= 0:
                has[owner].setdefault(topic.topic_id, set()).add(partition)
    members = {}
    for number in range(count):
        member_id = f"member-{draw(st.integers(0, 9))}-{number}"
        members[member_id] = MemberSpec(
            member_id,
            draw(st.sampled_from([None, f"instance-{number}"])),
            draw(st.sampled_from([None, *RACKS])) if racks else None,
            common if is_homogeneous else draw(subscriptions),
            {topic: frozenset(partitions) for topic, partitions in has[number].items()},
        )
    return GroupSpec(members, len({member.topic_ids for member in members.values()}) <= 1)


@st.composite
def cases(
    draw: st.DrawFn, *, is_homogeneous: bool | None = None, racks: bool = False
) -> tuple[GroupSpec, dict[UUID, TopicInfo]]:
    topics = draw(clusters(racks=racks))
    return draw(groups(topics, is_homogeneous=is_homogeneous, racks=racks)), topics
