"""`uniform`: balance first, then stickiness, then racks."""

import os
import subprocess
import sys
import time
from uuid import UUID

import pytest
from hypothesis import given
from tests.examples import examples
from tests.unit.core.groups.assignors.assignor_groups import (
    after,
    cases,
    check_complete,
    group_of,
    in_rack_count,
    keepable,
    loads,
    member,
    moves,
    readable,
    topics_of,
)

from ottla.core.groups.assignors import ASSIGNORS, GroupSpec
from ottla.core.groups.state import TopicInfo

UNIFORM = ASSIGNORS["uniform"]
Case = tuple[GroupSpec, dict[UUID, TopicInfo]]


def test_a_new_group_spreads_the_partitions_of_each_topic_over_its_members() -> None:
    group = group_of(member("m1", [1, 2]), member("m2", [1, 2]), member("m3", [1, 2]))
    assert readable(UNIFORM.assign(group, topics_of(3, 3))) == {
        "m1": {1: [0], 2: [0]},
        "m2": {1: [1], 2: [1]},
        "m3": {1: [2], 2: [2]},
    }


def test_a_joining_member_gets_only_the_partitions_that_balance_requires() -> None:
    before = {"m1": {1: [0, 1, 2]}, "m2": {1: [3, 4, 5]}}
    group = group_of(*(member(name, [1], has) for name, has in before.items()), member("m3", [1]))
    assert readable(UNIFORM.assign(group, topics_of(6))) == {
        "m1": {1: [0, 1]},
        "m2": {1: [3, 4]},
        "m3": {1: [2, 5]},
    }


def test_partitions_of_a_leaving_member_go_to_the_others_which_keep_theirs() -> None:
    group = group_of(member("m1", [1], {1: [0, 1]}), member("m3", [1], {1: [4, 5]}))
    assert readable(UNIFORM.assign(group, topics_of(6))) == {"m1": {1: [0, 1, 2]}, "m3": {1: [3, 4, 5]}}


def test_new_partitions_go_to_the_members_with_the_fewest() -> None:
    group = group_of(member("m1", [1], {1: [0, 1]}), member("m2", [1], {1: [2]}))
    assert readable(UNIFORM.assign(group, topics_of(4))) == {"m1": {1: [0, 1]}, "m2": {1: [2, 3]}}


def test_a_member_gives_up_partitions_of_the_topics_that_it_has_most_of() -> None:
    group = group_of(member("m1", [1, 2, 3], {1: [0, 1, 2], 2: [0], 3: [0, 1]}), member("m2", [1, 2, 3]))
    assert readable(UNIFORM.assign(group, topics_of(3, 1, 2))) == {
        "m1": {1: [0], 2: [0], 3: [0]},
        "m2": {1: [1, 2], 3: [1]},
    }


def test_with_more_members_than_partitions_some_get_none() -> None:
    group = group_of(*(member(f"m{number}", [1]) for number in range(5)))
    assert sorted(loads(UNIFORM.assign(group, topics_of(3)))) == [0, 0, 1, 1, 1]


def test_a_missing_topic_is_ignored() -> None:
    group = group_of(member("m1", [1, 2], {2: [0, 1]}), member("m2", [1, 2]))
    assert readable(UNIFORM.assign(group, topics_of(2))) == {"m1": {1: [0]}, "m2": {1: [1]}}


def test_without_subscriptions_no_member_gets_partitions() -> None:
    assert UNIFORM.assign(group_of(member("m1", [], {1: [0]})), topics_of(1)) == {"m1": {}}
    assert UNIFORM.assign(group_of(), topics_of(1)) == {}


def test_partitions_move_over_several_members_if_subscriptions_differ() -> None:
    """m1 and m3 share no topic: balance needs one of topic 2 from m3 to m2 and one of topic 1 from m2 to m1."""
    group = group_of(
        member("m1", [1], {1: range(9)}),
        member("m2", [1, 2], {1: range(9, 19)}),
        member("m3", [2], {2: range(11)}),
    )
    assignment = UNIFORM.assign(group, topics_of(19, 11))
    assert loads(assignment) == [10, 10, 10]
    assert moves(group, topics_of(19, 11), assignment) == 2


def test_the_only_subscriber_of_a_topic_gets_all_its_partitions_and_the_others_share_the_rest() -> None:
    group = group_of(member("m1", [1, 2]), member("m2", [2]), member("m3", [2]))
    assert readable(UNIFORM.assign(group, topics_of(5, 4))) == {
        "m1": {1: [0, 1, 2, 3, 4]},
        "m2": {2: [0, 2]},
        "m3": {2: [1, 3]},
    }


def test_partitions_of_an_unsubscribed_topic_are_removed() -> None:
    group = group_of(member("m1", [2], {1: [0, 1]}), member("m2", [1, 2], {2: [0, 1]}))
    assert readable(UNIFORM.assign(group, topics_of(2, 2))) == {"m1": {2: [0, 1]}, "m2": {1: [0, 1]}}


def test_partitions_that_move_go_to_a_rack_of_their_replicas() -> None:
    group = group_of(*(member(f"m-{rack}", [1], rack_id=rack) for rack in "abc"))
    topics = topics_of(6, racks=["c", "c", "a", "a", "b", "b"])
    assert readable(UNIFORM.assign(group, topics)) == {
        "m-a": {1: [2, 3]},
        "m-b": {1: [4, 5]},
        "m-c": {1: [0, 1]},
    }


def test_a_partition_does_not_move_only_because_of_a_rack() -> None:
    group = group_of(member("m-a", [1], {1: [0]}, rack_id="a"), member("m-b", [1], {1: [1]}, rack_id="b"))
    topics = topics_of(2, racks=["b", "a"])
    assert readable(UNIFORM.assign(group, topics)) == {"m-a": {1: [0]}, "m-b": {1: [1]}}


def test_a_member_first_gives_up_partitions_without_a_replica_in_its_rack() -> None:
    group = group_of(member("m-a", [1], {1: [0, 1, 2, 3]}, rack_id="a"), member("m-b", [1], rack_id="b"))
    topics = topics_of(4, racks=["b", "a", "b", "a"])
    assert readable(UNIFORM.assign(group, topics)) == {"m-a": {1: [1, 3]}, "m-b": {1: [0, 2]}}


@given(cases())
@examples(60)
def test_every_partition_has_one_owner_that_is_subscribed(case: Case) -> None:
    check_complete(*case, UNIFORM.assign(*case))


@given(cases(is_homogeneous=True))
@examples(60)
def test_loads_differ_by_at_most_one_with_identical_subscriptions(case: Case) -> None:
    assignment = UNIFORM.assign(*case)
    assert max(loads(assignment)) - min(loads(assignment)) <= 1


@given(cases(is_homogeneous=True))
@examples(60)
def test_only_moves_that_balance_requires_are_made(case: Case) -> None:
    """With P partitions and n members each member can keep P // n, and P % n of them one more."""
    group, topics = case
    assignment = UNIFORM.assign(group, topics)
    quota, extras = divmod(sum(loads(assignment)), len(group.members))
    has = list(keepable(group, topics).values())
    counts = [has.count(member_id) for member_id in group.members]
    most_kept = sum(min(count, quota) for count in counts) + min(
        extras, sum(count > quota for count in counts)
    )
    assert moves(group, topics, assignment) == len(has) - most_kept


@given(cases(is_homogeneous=False))
@examples(60)
def test_no_path_of_moves_would_improve_the_balance(case: Case) -> None:
    """The certificate of the best balance that the subscriptions allow."""
    group, topics = case
    assignment = UNIFORM.assign(group, topics)
    load = dict(zip(assignment, loads(assignment), strict=True))
    for first in assignment:
        reached, todo = {first}, [first]
        while todo:
            has = assignment[todo.pop()]
            takers = {m.member_id for m in group.members.values() if m.topic_ids & has.keys()}
            todo.extend(takers - reached)
            reached |= takers
        assert all(load[member_id] >= load[first] - 1 for member_id in reached)


@given(cases(racks=True))
@examples(60)
def test_assigning_again_changes_nothing(case: Case) -> None:
    group, topics = case
    once = UNIFORM.assign(group, topics)
    assert UNIFORM.assign(after(group, once), topics) == once


@given(cases())
@examples(30)
def test_the_order_of_members_does_not_matter(case: Case) -> None:
    group, topics = case
    backwards = GroupSpec(dict(reversed(list(group.members.items()))), group.is_homogeneous)
    assert UNIFORM.assign(backwards, dict(reversed(topics.items()))) == UNIFORM.assign(group, topics)


@given(cases(racks=True))
@examples(60)
def test_racks_improve_locality_without_more_moves_or_less_balance(case: Case) -> None:
    group, topics = case
    without = {topic_id: topic._replace(racks=()) for topic_id, topic in topics.items()}
    plain, aware = UNIFORM.assign(group, without), UNIFORM.assign(group, topics)
    check_complete(group, topics, aware)
    assert sorted(loads(aware)) == sorted(loads(plain))
    if group.is_homogeneous:
        assert moves(group, topics, aware) == moves(group, topics, plain)
    if not keepable(group, topics):
        assert in_rack_count(group, topics, aware) >= in_rack_count(group, topics, plain)


@given(cases(racks=True))
@examples(30)
def test_if_every_rack_has_every_partition_racks_do_not_change_the_assignment(case: Case) -> None:
    group, topics = case
    everywhere = {
        topic_id: topic._replace(racks=(frozenset("abc"),) * topic.num_partitions)
        for topic_id, topic in topics.items()
    }
    in_racks = {name: m._replace(rack_id=m.rack_id or "a") for name, m in group.members.items()}
    without = {topic_id: topic._replace(racks=()) for topic_id, topic in topics.items()}
    assert UNIFORM.assign(GroupSpec(in_racks, group.is_homogeneous), everywhere) == UNIFORM.assign(
        group, without
    )


@pytest.mark.slow
def test_the_result_does_not_depend_on_how_this_process_hashes_strings() -> None:
    """Racks are sets of strings, whose order changes from process to process."""
    script = (
        "from assignor_groups import *\n"
        "from ottla.core.groups.assignors import ASSIGNORS\n"
        "racks = [RACKS[n % 3] + RACKS[n * 2 % 3] for n in range(9)]\n"
        "members = [member(f'm{n}', [1, 2 + n % 2], rack_id=RACKS[n % 3]) for n in range(5)]\n"
        "for assignor in ASSIGNORS.values():\n"
        "    print(readable(assignor.assign(group_of(*members), topics_of(9, 9, 9, racks=racks))))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1


@pytest.mark.slow
def test_the_uniform_assignor_is_fast_for_a_thousand_members_and_ten_thousand_partitions() -> None:
    """It takes tenths of a second. The limit is wide for slow machines, and far below quadratic time."""
    topics = topics_of(*[100] * 100)
    for subscriptions in ([range(1, 101)], [range(1, 71), range(31, 101), range(1, 101, 2)]):
        members = [member(f"m{n:04}", subscriptions[n % len(subscriptions)]) for n in range(1500)]
        new = group_of(*members[:1000])
        began = time.process_time()
        grown = {**after(new, UNIFORM.assign(new, topics)).members, **group_of(*members[1000:]).members}
        assignment = UNIFORM.assign(GroupSpec(grown, new.is_homogeneous), topics)
        assert time.process_time() - began < 5
        assert sum(loads(assignment)) == 10_000
