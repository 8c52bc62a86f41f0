"""The planner of reassignments: racks, replicas, disks and leaders are balanced, with as few moves as possible."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from ottla.admin.reassignment_generator import Wish, generate_plan
from ottla.admin.reassignment_plan import ClusterState, PartitionState, Plan
from ottla.admin.replica_planner import Goal, PlannedPartition, PlannerError, plan_replicas
from ottla.model.ids import TopicPartition

Partitions = dict[TopicPartition, PlannedPartition]
Racks = dict[int, str | None]


def journal(*replicas: tuple[int, ...], sizes: tuple[int, ...] = ()) -> Partitions:
    return {
        TopicPartition("journal", index): PlannedPartition(each, sizes[index] if sizes else 1000)
        for index, each in enumerate(replicas)
    }


def no_racks(*brokers: int) -> Racks:
    return dict.fromkeys(brokers)


def after(partitions: Partitions, plan: Plan) -> dict[TopicPartition, tuple[int, ...]]:
    return {partition: plan.get(partition, found.replicas) for partition, found in partitions.items()}


def counts(replicas: Mapping[TopicPartition, tuple[int, ...]], brokers: Mapping[int, object]) -> Counter[int]:
    found = Counter(dict.fromkeys(brokers, 0))
    found.update(broker for each in replicas.values() for broker in each)
    return found


def spread(numbers: Mapping[int, int]) -> int:
    return max(numbers.values()) - min(numbers.values())


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Partitions, Racks]:
    """Brokers without racks, or racks of the same size, and partitions of one replication factor anywhere."""
    racks = draw(st.integers(1, 3))
    count = racks * draw(st.integers(1, 3))
    has_racks = draw(st.booleans())
    of_broker: Racks = {broker: f"r{broker % racks}" if has_racks else None for broker in range(count)}
    factor = draw(st.integers(1, min(count, 3)))
    order = st.permutations(range(count)).map(lambda brokers: tuple(brokers[:factor]))
    partitions = draw(st.lists(st.tuples(order, st.integers(0, 1000)), min_size=1, max_size=15))
    replicas = [each for each, _ in partitions]
    return journal(*replicas, sizes=tuple(size for _, size in partitions)), of_broker


@given(clusters())
@examples()
def test_replicas_leaders_and_racks_are_balanced(cluster: tuple[Partitions, Racks]) -> None:
    partitions, racks = cluster
    replicas = after(partitions, plan_replicas(partitions, racks, Goal(racks)))
    for partition, each in replicas.items():
        assert len(set(each)) == len(each) == len(partitions[partition].replicas)
        if all(racks.values()):
            in_racks = Counter(racks[broker] for broker in each)
            assert max(in_racks.values()) <= -(-len(each) // len(set(racks.values())))
    assert spread(counts(replicas, racks)) <= 1
    used = {broker: None for each in replicas.values() for broker in each}
    assert spread(counts({partition: each[:1] for partition, each in replicas.items()}, used)) <= 1


@given(clusters())
@examples()
def test_a_balanced_cluster_stays_as_it_is(cluster: tuple[Partitions, Racks]) -> None:
    partitions, racks = cluster
    replicas = after(partitions, plan_replicas(partitions, racks, Goal(racks)))
    balanced = {
        partition: found._replace(replicas=replicas[partition]) for partition, found in partitions.items()
    }
    assert plan_replicas(balanced, racks, Goal(racks)) == {}


@given(clusters(), st.integers(0, 8))
@examples()
def test_a_drain_moves_only_the_replicas_of_the_drained_broker(
    cluster: tuple[Partitions, Racks], number: int
) -> None:
    partitions, racks = cluster
    drained = number % len(racks)
    remaining = set(racks) - {drained}
    factor = len(next(iter(partitions.values())).replicas)
    goal = Goal(remaining, rebalances=False)
    if factor > len(remaining):
        with pytest.raises(PlannerError, match="may have its replicas"):
            plan_replicas(partitions, racks, goal)
        return
    plan = plan_replicas(partitions, racks, goal)
    for partition, found in partitions.items():
        assert set(found.replicas) - set(plan.get(partition, found.replicas)) == {drained} & set(
            found.replicas
        )
        assert (partition in plan) == (drained in found.replicas)


@given(clusters(), st.integers(1, 3))
@examples()
def test_another_replication_factor_keeps_as_many_replicas_as_it_can(
    cluster: tuple[Partitions, Racks], factor: int
) -> None:
    partitions, racks = cluster
    factor = min(factor, len(racks))
    plan = plan_replicas(partitions, racks, Goal(racks, replication_factor=factor, rebalances=False))
    for partition, found in partitions.items():
        new = plan.get(partition, found.replicas)
        assert len(set(new)) == len(new) == factor
        assert len(set(new) & set(found.replicas)) == min(factor, len(found.replicas))


@given(clusters())
@examples()
def test_brokers_that_are_added_get_their_share_and_nobody_else_gets_more(
    cluster: tuple[Partitions, Racks],
) -> None:
    partitions, racks = cluster
    racks = no_racks(*racks)
    new = len(racks)
    plan = plan_replicas(partitions, {**racks, new: None}, Goal([*racks, new], receivers=[new]))
    for partition, replicas in plan.items():
        assert set(replicas) - set(partitions[partition].replicas) <= {new}
    found = counts(after(partitions, plan), {**racks, new: None})
    assert all(found[new] >= found[broker] - 1 or found[new] == len(partitions) for broker in racks)


def test_disks_are_evened_out_by_a_swap() -> None:
    partitions = journal((1,), (1,), (2,), (2,), sizes=(900, 800, 100, 200))
    replicas = after(partitions, plan_replicas(partitions, no_racks(1, 2), Goal([1, 2])))
    size_bytes: Counter[int] = Counter()
    for partition, (broker,) in replicas.items():
        size_bytes[broker] += partitions[partition].size_bytes
    assert size_bytes == {1: 1000, 2: 1000}


def test_a_small_difference_of_disks_is_not_worth_a_move() -> None:
    partitions = journal((1,), (2,), sizes=(1000, 1100))
    assert plan_replicas(partitions, no_racks(1, 2), Goal([1, 2])) == {}


def test_of_two_partitions_the_one_that_evens_out_disks_moves() -> None:
    partitions = journal((1,), (1,), (2,), (1,), sizes=(10, 900, 100, 800))
    plan = plan_replicas(partitions, no_racks(1, 2), Goal([1, 2]))
    assert plan == {TopicPartition("journal", 3): (2,)}


def test_leaders_change_without_a_copy() -> None:
    partitions = journal((1, 2), (1, 2), (1, 2), (1, 2))
    plan = plan_replicas(partitions, no_racks(1, 2), Goal([1, 2]))
    assert len(plan) == 2
    assert set(plan.values()) == {(2, 1)}


def test_a_replacement_keeps_the_place_of_the_replica_and_its_rack() -> None:
    racks: Racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    partitions = journal((1, 2))
    plan = plan_replicas(partitions, racks, Goal([2, 3, 4], rebalances=False))
    assert plan == {TopicPartition("journal", 0): (3, 2)}


def test_replicas_of_topics_that_are_not_selected_stay_and_count() -> None:
    partitions = journal((1,), (1,), (1,)) | {TopicPartition("other", 0): PlannedPartition((2,), 1000)}
    selected = [partition for partition in partitions if partition.topic == "journal"]
    plan = plan_replicas(partitions, no_racks(1, 2), Goal([1, 2], selected))
    assert len(plan) == 1
    assert TopicPartition("other", 0) not in plan


def test_replicas_in_sync_are_kept() -> None:
    partition = TopicPartition("journal", 0)
    state = ClusterState(
        {1: None, 2: None, 3: None}, frozenset(), {partition: PartitionState((1, 2, 3), (1, 3), 1, 1000)}, {}
    )
    assert generate_plan(state, Wish(replication_factor=2)) == {partition: (1, 3)}
