"""The leader and the eligible replicas of a partition after each kind of change."""

import uuid
from collections.abc import Collection
from typing import Any

import pytest

from ottla.core.controller.delta import changed_partition
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.partition_change import (
    Election,
    ElectionRules,
    PartitionTarget,
    change_partition,
)
from ottla.protocol.metadata_records.records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

ID = uuid.UUID(int=7)


def partition(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **more: Any) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2, 3), isr=isr, leader=leader, leader_epoch=5, partition_epoch=9, directories=(None,) * 3
    )._replace(**more)


def change(
    before: PartitionImage,
    active: Collection[int],
    isr: tuple[int, ...] | None = None,
    election: Election = Election.ONLINE,
    min_isr: int = 1,
    has_elr: bool = False,
    lost: int | None = None,
) -> PartitionChangeRecord | None:
    rules = ElectionRules(lambda broker, directory: broker in active, min_isr, has_elr)
    return change_partition(ID, 0, before, PartitionTarget(isr, lost=lost), election, rules)


def after(before: PartitionImage, *args: Any, **more: Any) -> PartitionImage:
    record = change(before, *args, **more)
    assert record is not None
    return changed_partition(before, record)


def test_a_leader_that_can_lead_stays() -> None:
    assert change(partition(), {1, 2, 3}) is None
    assert change(partition(leader=2), {1, 2, 3}) is None


def test_an_isr_that_shrinks_does_not_raise_the_leader_epoch() -> None:
    changed = after(partition(), {1, 2, 3}, (1, 2))
    assert (changed.isr, changed.leader_epoch, changed.partition_epoch) == ((1, 2), 5, 10)


def test_the_first_available_replica_of_the_isr_is_elected() -> None:
    changed = after(partition(isr=(3, 2, 1)), {2, 3}, (3, 2))
    assert (changed.leader, changed.isr, changed.leader_epoch) == (2, (3, 2), 6)


def test_a_replica_that_is_not_in_sync_is_not_elected() -> None:
    changed = after(partition(isr=(1,)), {2, 3}, ())
    assert (changed.leader, changed.isr) == (NO_LEADER, (1,))


def test_an_unclean_election_takes_any_available_replica_and_marks_it_as_recovering() -> None:
    changed = after(partition(isr=(1,)), {3}, (), Election.UNCLEAN)
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (3, (3,), 1)


def test_an_unclean_election_prefers_a_replica_in_sync() -> None:
    changed = after(partition(isr=(1, 3)), {2, 3}, (3,), Election.UNCLEAN)
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (3, (3,), 0)


def test_a_preferred_election_takes_the_first_replica_if_it_is_in_sync() -> None:
    assert after(partition(leader=2), {1, 2}, election=Election.PREFERRED).leader == 1
    assert change(partition(leader=2, isr=(2, 3)), {1, 2}, election=Election.PREFERRED) is None


# Eligible leader replicas (KIP-966)


def test_below_min_isr_those_that_leave_the_isr_stay_eligible() -> None:
    first = after(partition(), {1, 2}, (1, 2), min_isr=2, has_elr=True)
    assert (first.isr, first.eligible_leader_replicas) == ((1, 2), ())
    second = after(first, {1}, (1,), min_isr=2, has_elr=True)
    assert (second.isr, second.eligible_leader_replicas) == ((1,), (2,))
    third = after(second, set(), (), min_isr=2, has_elr=True)
    assert (third.leader, third.isr, third.last_known_elr) == (NO_LEADER, (), (1,))
    assert third.eligible_leader_replicas == (2, 1)


def test_an_eligible_replica_is_elected_if_no_replica_is_in_sync() -> None:
    before = partition((), NO_LEADER, eligible_leader_replicas=(2, 1), last_known_elr=(1,))
    changed = after(before, {2, 3}, min_isr=2, has_elr=True)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (2, (2,), (1,))
    assert (changed.last_known_elr, changed.leader_recovery_state) == ((), 0)


def test_no_other_replica_stays_eligible_if_the_one_that_is_elected_may_commit_alone() -> None:
    """min.insync.replicas was lowered while the partition had no leader."""
    before = partition((), NO_LEADER, eligible_leader_replicas=(2, 1), last_known_elr=(1,))
    changed = after(before, {1}, min_isr=1, has_elr=True)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (1, (1,), ())
    assert after(changed, {2}, (), min_isr=1, has_elr=True).leader == NO_LEADER


def test_the_eligible_replicas_are_cleared_when_the_isr_is_large_enough() -> None:
    before = partition((1,), eligible_leader_replicas=(2,))
    assert after(before, {1, 3}, (1, 3), min_isr=2, has_elr=True).eligible_leader_replicas == ()


def test_an_eligible_replica_is_not_elected_while_a_replica_is_in_sync() -> None:
    before = partition((1,), NO_LEADER, eligible_leader_replicas=(2,))
    assert change(before, {2}, min_isr=2, has_elr=True) is None


def test_a_replica_that_may_have_lost_records_is_not_eligible() -> None:
    before = partition((1,), eligible_leader_replicas=(2,))
    changed = after(before, {3}, (), min_isr=2, has_elr=True, lost=1)
    assert (changed.isr, changed.eligible_leader_replicas, changed.last_known_elr) == ((), (2,), (1,))


def test_the_last_known_leader_is_elected_only_if_it_is_available_and_no_other_is_eligible() -> None:
    before = partition((), NO_LEADER, last_known_elr=(2,))
    assert change(before, {1, 3}, has_elr=True) is None
    changed = after(before, {1, 2}, has_elr=True)
    assert (changed.leader, changed.isr, changed.last_known_elr) == (2, (2,), ())
    assert changed.leader_recovery_state == 1
    eligible = before._replace(eligible_leader_replicas=(3,))
    assert change(eligible, {2}, has_elr=True) is None


def test_an_isr_that_has_no_leader_since_before_elr_is_known_as_the_last_leader() -> None:
    before = partition((2,), NO_LEADER)
    changed = after(before, {1}, (), has_elr=True, lost=2)
    assert (changed.leader, changed.isr, changed.last_known_elr) == (NO_LEADER, (), (2,))


def test_an_unclean_election_clears_the_eligible_replicas() -> None:
    before = partition((), NO_LEADER, eligible_leader_replicas=(2,), last_known_elr=(1,))
    changed = after(before, {3}, election=Election.UNCLEAN, has_elr=True)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (3, (3,), ())


# Reassignment (KIP-455)


def reassigning() -> PartitionImage:
    """From 1, 2 to 2, 3."""
    directories = tuple(uuid.UUID(int=number << 80) for number in (1, 2, 3))
    return partition(
        (1, 2),
        replicas=(2, 3, 1),
        directories=directories,
        adding_replicas=(3,),
        removing_replicas=(1,),
    )


def test_a_reassignment_is_complete_when_the_new_replicas_are_in_sync() -> None:
    changed = after(reassigning(), {1, 2, 3}, (1, 2, 3))
    assert (changed.replicas, changed.isr) == ((2, 3), (2, 3))
    assert (changed.adding_replicas, changed.removing_replicas) == ((), ())
    assert changed.directories == reassigning().directories[:2]
    assert (changed.leader, changed.leader_epoch) == (2, 6)


def test_a_reassignment_goes_on_while_a_new_replica_is_not_in_sync() -> None:
    changed = after(reassigning(), {1, 2, 3}, (1,))
    assert (changed.replicas, changed.isr, changed.adding_replicas) == ((2, 3, 1), (1,), (3,))


def test_removing_a_replica_raises_the_leader_epoch_even_if_the_leader_stays() -> None:
    changed = after(reassigning()._replace(leader=2), {1, 2, 3}, (1, 2, 3))
    assert (changed.leader, changed.leader_epoch) == (2, 6)


def test_a_record_contains_only_what_changes() -> None:
    record = change(partition(), {1, 2, 3}, (1, 2))
    assert record == PartitionChangeRecord(partition_id=0, topic_id=ID, isr=(1, 2))
    assert record is not None
    assert record.leader == NO_LEADER_CHANGE


@pytest.mark.parametrize("has_elr", [False, True])
def test_a_partition_without_a_leader_has_none_that_could_lead(has_elr: bool) -> None:
    for isr in ((1,), (1, 2), (1, 2, 3)):
        for active in ((), (1,), (2,), (3,), (1, 2), (2, 3)):
            available = tuple(replica for replica in isr if replica in active)
            before = partition(isr)
            record = change(before, active, available, has_elr=has_elr, min_isr=2)
            changed = before if record is None else changed_partition(before, record)
            assert (changed.leader != NO_LEADER) == bool(available)
            assert changed.leader in (NO_LEADER, *changed.isr)


def test_without_elr_a_replica_that_may_have_lost_records_leaves_the_list_that_is_kept() -> None:
    """The feature was lowered while no replica was in sync. Broker 1 still has all records."""
    before = partition(isr=(), leader=NO_LEADER, eligible_leader_replicas=(1, 2))
    assert after(before, {2}, (), lost=2).leader == NO_LEADER
    assert after(before, {2}, (), lost=2).eligible_leader_replicas == (1,)


def test_without_elr_the_last_replica_stays_in_the_list_that_is_kept() -> None:
    before = partition(isr=(), leader=NO_LEADER, eligible_leader_replicas=(2,))
    assert after(before, {2}, (), lost=2).leader == 2
