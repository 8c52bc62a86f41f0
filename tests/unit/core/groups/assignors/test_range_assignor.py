"""`range`: co-partitioned, in the order of members."""

from uuid import UUID

from hypothesis import given
from tests.examples import examples
from tests.unit.core.groups.assignors.assignor_groups import (
    cases,
    check_complete,
    group_of,
    in_rack_count,
    loads,
    member,
    readable,
    topics_of,
)

from ottla.core.groups.assignors import ASSIGNORS, GroupSpec
from ottla.core.groups.state import TopicInfo

RANGE = ASSIGNORS["range"]
Case = tuple[GroupSpec, dict[UUID, TopicInfo]]


def test_members_have_the_same_partitions_of_each_topic() -> None:
    group = group_of(member("m0", [1, 2]), member("m1", [1, 2]))
    assert readable(RANGE.assign(group, topics_of(3, 3))) == {
        "m0": {1: [0, 1], 2: [0, 1]},
        "m1": {1: [2], 2: [2]},
    }


def test_static_members_come_first_and_keep_their_place_with_a_new_member_id() -> None:
    for first, second in (("m1", "m2"), ("m9", "m0")):
        group = group_of(
            member("m3", [1]), member(second, [1], instance_id="i2"), member(first, [1], instance_id="i1")
        )
        assert readable(RANGE.assign(group, topics_of(4))) == {
            first: {1: [0, 1]},
            second: {1: [2]},
            "m3": {1: [3]},
        }


def test_each_topic_is_split_among_its_own_subscribers() -> None:
    group = group_of(member("m1", [1, 2]), member("m2", [2]), member("m3", [2, 3]))
    assert readable(RANGE.assign(group, topics_of(2, 3, 2))) == {
        "m1": {1: [0, 1], 2: [0]},
        "m2": {2: [1]},
        "m3": {2: [2], 3: [0, 1]},
    }


def test_with_more_members_than_partitions_the_last_ones_get_none() -> None:
    group = group_of(member("m1", [1]), member("m2", [1]), member("m3", [1]))
    assert readable(RANGE.assign(group, topics_of(2))) == {"m1": {1: [0]}, "m2": {1: [1]}, "m3": {}}


def test_current_assignments_do_not_matter() -> None:
    group = group_of(member("m1", [1], {1: [2, 3]}), member("m2", [1], {1: [0, 1]}))
    assert readable(RANGE.assign(group, topics_of(4))) == {"m1": {1: [0, 1]}, "m2": {1: [2, 3]}}


def test_a_missing_topic_is_ignored_by_the_range_assignor() -> None:
    assert readable(RANGE.assign(group_of(member("m1", [1, 2])), topics_of(1))) == {"m1": {1: [0]}}
    assert RANGE.assign(group_of(), topics_of(1)) == {}


def test_members_get_partitions_in_their_rack_and_the_same_ones_of_co_partitioned_topics() -> None:
    group = group_of(member("m1", [1, 2], rack_id="a"), member("m2", [1, 2], rack_id="b"))
    topics = topics_of(4, 4, racks=["ab", "b", "a", "a"])
    assert readable(RANGE.assign(group, topics)) == {
        "m1": {1: [2, 3], 2: [2, 3]},
        "m2": {1: [0, 1], 2: [0, 1]},
    }


@given(cases(racks=True))
@examples(60)
def test_every_partition_is_in_one_range_of_a_subscriber(case: Case) -> None:
    check_complete(*case, RANGE.assign(*case))


@given(cases(racks=True))
@examples(60)
def test_racks_do_not_change_the_number_of_partitions_or_co_partitioning(case: Case) -> None:
    group, topics = case
    without = {topic_id: topic._replace(racks=()) for topic_id, topic in topics.items()}
    plain, aware = RANGE.assign(group, without), RANGE.assign(group, topics)
    assert loads(aware) == loads(plain)
    for name, has in plain.items():
        for one, partitions in has.items():
            assert len(aware[name][one]) == len(partitions)
            alike = [
                other
                for other in has
                if topics[other].num_partitions == topics[one].num_partitions and group.is_homogeneous
            ]
            assert all(aware[name][other] == aware[name][one] for other in alike)


@given(cases(racks=True, is_homogeneous=True))
@examples(50)
def test_racks_improve_the_locality_of_a_single_topic(case: Case) -> None:
    group, topics = case
    only = dict(list(topics.items())[:1])
    without = {topic_id: topic._replace(racks=()) for topic_id, topic in only.items()}
    plain, aware = RANGE.assign(group, without), RANGE.assign(group, only)
    assert in_rack_count(group, only, aware) >= in_rack_count(group, only, plain)


@given(cases(racks=True))
@examples(30)
def test_if_every_rack_has_every_partition_racks_do_not_change_the_ranges(case: Case) -> None:
    group, topics = case
    everywhere = {
        topic_id: topic._replace(racks=(frozenset("abc"),) * topic.num_partitions)
        for topic_id, topic in topics.items()
    }
    without = {topic_id: topic._replace(racks=()) for topic_id, topic in topics.items()}
    assert RANGE.assign(group, everywhere) == RANGE.assign(group, without)
