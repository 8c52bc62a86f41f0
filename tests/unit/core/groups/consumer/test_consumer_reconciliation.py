"""How partitions move between members, and when a target is computed (KIP-848, KIP-1263)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.core.groups.consumer.consumer_groups import Groups, Member, Topics, rejected, settle

from ottla.core.groups.consumer.member import MemberState
from ottla.model.errors import ErrorCode


@pytest.fixture
def groups() -> Groups:
    return Groups(Topics(orders=4, payments=2))


def states(groups: Groups) -> dict[str, MemberState]:
    return {member_id: member.state for member_id, member in groups.group().members.items()}


def test_a_partition_is_assigned_only_after_it_was_revoked(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True).join()
    second = Member(groups, "b", "orders").join()
    groups.advance(1000)
    second.heartbeat()
    assert second.owned == set()
    assert states(groups)["b"] is MemberState.UNRELEASED_PARTITIONS

    first.heartbeat()
    assert len(first.assigned) == 2
    assert states(groups)["a"] is MemberState.UNREVOKED_PARTITIONS
    first.report()  # it still owns all four
    second.heartbeat()
    assert second.owned == set()

    first.revoke()
    first.report()
    assert states(groups)["a"] is MemberState.STABLE
    second.heartbeat()
    assert len(second.owned) == 2
    assert states(groups)["b"] is MemberState.STABLE


def test_a_member_that_must_revoke_stays_in_its_epoch_until_it_has(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True).join()
    epoch = first.epoch
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    assert first.epoch == epoch
    first.revoke()
    first.report()
    assert first.epoch == groups.group().assignment_epoch > epoch


def test_a_member_that_does_not_report_its_owned_partitions_still_owns_them(groups: Groups) -> None:
    first = Member(groups, "a", "orders").join()
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    first.heartbeat()
    assert states(groups)["a"] is MemberState.UNREVOKED_PARTITIONS


def test_a_member_that_does_not_revoke_within_its_rebalance_timeout_is_removed(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True, rebalance_timeout_ms=10_000).join()
    second = Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    groups.advance(9999)
    first.heartbeat()
    groups.advance(1)
    with rejected(ErrorCode.unknown_member_id):
        first.heartbeat()
    second.heartbeat()
    assert second.partitions("orders") == set(range(4))


def test_the_rebalance_timeout_applies_after_a_reload(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True, rebalance_timeout_ms=10_000).join()
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    groups.restart()
    groups.advance(10_000)
    assert "a" not in groups.group().members


def test_a_member_that_has_revoked_is_not_fenced_by_a_late_timer(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True, rebalance_timeout_ms=10_000).join()
    second = Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    timers = dict(groups.timers)
    settle(groups, second)
    first.revoke()
    first.report()
    groups.timers.update(timers)
    groups.advance(10_000)
    assert "a" in groups.group().members


def test_unsubscribed_partitions_are_revoked_before_the_new_target_is_computed(groups: Groups) -> None:
    first = Member(groups, "a", "orders", "payments").join()
    second = Member(groups, "b", "orders", "payments").join()
    groups.advance(1000)  # computes a target: the next one has to wait
    for member in (first, second, first, second):
        member.report()
    assert groups.group().state == "Stable"
    epoch = groups.group().assignment_epoch
    assert first.partitions("payments")
    first.subscribe("orders")
    assert groups.group().assignment_epoch == epoch
    assert groups.group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert not first.partitions("payments")
    settle(groups, first, second)
    assert second.partitions("payments") == {0, 1}


def test_the_last_remaining_member_does_not_wait_for_its_target(groups: Groups) -> None:
    first, second = Member(groups, "a", "orders").join(), Member(groups, "b", "orders").join()
    first.leave()
    second.heartbeat()
    assert second.partitions("orders") == set(range(4))
    groups.advance(1000)
    assert groups.group().state == "Stable"


def test_a_subscription_that_is_changed_back_gets_its_partitions_back() -> None:
    groups = Groups(Topics(orders=2, payments=2), consumer_assignment_interval_ms=0)
    member = Member(groups, "a", "orders", "payments", slow=True).join()
    member.subscribe("orders")
    assert states(groups)["a"] is MemberState.UNREVOKED_PARTITIONS
    member.subscribe("orders", "payments")
    assert states(groups)["a"] is MemberState.UNREVOKED_PARTITIONS  # it was asked to revoke, and has not yet
    member.revoke()
    member.report()
    assert len(member.owned) == 4
    assert groups.group().state == "Stable"


def test_the_first_target_does_not_wait(groups: Groups) -> None:
    assert len(Member(groups, "a", "orders").join().owned) == 4


def test_the_only_member_of_a_group_does_not_wait_for_its_target(groups: Groups) -> None:
    Member(groups, "a", "orders").join().leave()
    assert len(Member(groups, "b", "orders").join().owned) == 4


def test_targets_are_computed_once_per_interval_and_changes_in_between_are_collected(
    groups: Groups,
) -> None:
    members = [Member(groups, f"m{number}", "orders").join() for number in range(4)]
    first_target = groups.group().assignment_epoch
    assert groups.group().state == "Assigning"
    groups.advance(999)
    assert groups.group().assignment_epoch == first_target
    groups.advance(1)
    assert groups.group().assignment_epoch == groups.group().group_epoch
    settle(groups, *members)
    assert all(len(member.owned) == 1 for member in members)


def test_a_group_may_override_the_assignment_interval() -> None:
    groups = Groups(Topics(orders=4), consumer_assignment_interval_ms=0)
    Member(groups, "a", "orders").join()
    Member(groups, "b", "orders").join()
    assert groups.group().state == "Reconciling"


def test_a_target_that_was_due_is_computed_after_a_reload(groups: Groups) -> None:
    Member(groups, "a", "orders").join()
    Member(groups, "b", "orders").join()
    groups.restart()
    assert groups.group().state == "Assigning"
    groups.advance(1000)
    assert groups.group().state == "Reconciling"


def test_a_group_never_waits_longer_than_the_interval_even_if_the_clock_is_set_back(
    groups: Groups,
) -> None:
    Member(groups, "a", "orders").join()
    groups.now_ms -= 500_000
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    assert groups.group().state == "Reconciling"


def test_a_member_that_waits_for_partitions_gets_a_short_heartbeat_interval(groups: Groups) -> None:
    first = Member(groups, "a", "orders").join()
    assert first.interval_ms == 5000
    second = Member(groups, "b", "orders").join()
    assert second.interval_ms == 1000
    groups.advance(1000)
    assert second.heartbeat().interval_ms == 1000  # "a" has not revoked yet
    settle(groups, first, second)
    assert (first.interval_ms, second.interval_ms) == (5000, 5000)


@given(partitions=st.integers(1, 12), count=st.integers(1, 5))
@examples(30)
def test_only_partitions_of_joining_and_leaving_members_move(partitions: int, count: int) -> None:
    groups = Groups(Topics(orders=partitions), consumer_assignment_interval_ms=0)
    members = [Member(groups, f"m{number}", "orders").join() for number in range(count)]
    settle(groups, *members)
    before = [set(member.owned) for member in members]
    newcomer = Member(groups, "newcomer", "orders").join()
    settle(groups, *members, newcomer)
    assert all(member.owned <= had for member, had in zip(members, before, strict=True))
    before = [set(member.owned) for member in members]
    newcomer.leave()
    settle(groups, *members)
    assert all(member.owned >= had for member, had in zip(members, before, strict=True))
