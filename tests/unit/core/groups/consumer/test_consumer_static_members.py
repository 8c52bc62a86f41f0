"""Static members of consumer groups (KIP-345 in KIP-848): they leave and come back, and keep their partitions."""

import pytest
from tests.unit.core.groups.consumer.consumer_groups import Groups, Member, Topics, rejected, settle

from ottla.core.groups.consumer.member import MemberState
from ottla.model.errors import ErrorCode
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)


@pytest.fixture
def groups() -> Groups:
    return Groups(Topics(orders=4))


@pytest.fixture
def pair(groups: Groups) -> tuple[Member, Member]:
    first = Member(groups, "a1", "orders", instance_id="a").join()
    second = Member(groups, "b1", "orders", instance_id="b").join()
    settle(groups, first, second)
    return first, second


def test_a_static_member_that_comes_back_keeps_its_partitions_and_causes_no_rebalance(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, second = pair
    had, epoch = set(first.owned), groups.group().group_epoch
    first.leave(-2)
    assert groups.group().members["a1"].member_epoch == -2
    second.heartbeat()
    assert len(second.owned) == 2

    again = Member(groups, "a2", "orders", instance_id="a").join()
    assert again.owned == had
    assert groups.group().group_epoch == epoch
    assert groups.group().state == "Stable"
    assert set(groups.group().members) == {"a2", "b1"}


def test_a_returning_static_member_writes_tombstones_for_the_old_id_and_records_for_the_new_one(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, _ = pair
    first.leave(-2)
    written = len(groups.records)
    Member(groups, "a2", "orders", instance_id="a").join()
    current, target, metadata = (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    )
    assert [
        (type(key), key.member_id, value is None) for key, value in groups.records[written : written + 6]
    ] == [
        (current, "a1", True),
        (target, "a1", True),
        (metadata, "a1", True),
        (metadata, "a2", False),
        (target, "a2", False),
        (current, "a2", False),
    ]


def test_a_static_member_that_stays_away_longer_than_its_session_is_removed(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, second = pair
    first.leave(-2)
    for _ in range(10):
        groups.advance(5000)
        second.heartbeat()
    assert second.partitions("orders") == set(range(4))
    assert set(groups.group().members) == {"b1"}


def test_a_static_member_can_leave_permanently(groups: Groups, pair: tuple[Member, Member]) -> None:
    first, second = pair
    first.leave(-1)
    second.heartbeat()
    assert second.partitions("orders") == set(range(4))


def test_an_active_instance_is_not_replaced(groups: Groups, pair: tuple[Member, Member]) -> None:
    with rejected(ErrorCode.unreleased_instance_id, "owned by a1"):
        Member(groups, "a2", "orders", instance_id="a").join()
    with rejected(ErrorCode.unreleased_instance_id):
        Member(groups, "a1", "orders", instance_id="a").join()


def test_the_previous_incarnation_of_a_static_member_is_fenced(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, _ = pair
    epoch = first.epoch
    first.leave(-2)
    Member(groups, "a2", "orders", instance_id="a").join()
    with rejected(ErrorCode.fenced_instance_id, "fenced by member a2"):
        groups.heartbeat("a1", epoch, instance_id="a")
    with rejected(ErrorCode.fenced_instance_id):
        groups.heartbeat("a1", -1, instance_id="a")
    with rejected(ErrorCode.unknown_member_id, "Instance id c is unknown."):
        groups.heartbeat("a1", epoch, instance_id="c")
    with rejected(ErrorCode.unknown_member_id):
        groups.heartbeat("c1", -2, instance_id="c")


def test_a_static_member_that_has_left_temporarily_must_join_again(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, _ = pair
    epoch = first.epoch
    first.leave(-2)
    with rejected(ErrorCode.fenced_member_epoch):
        groups.heartbeat("a1", epoch, instance_id="a")


def test_partitions_that_a_leaving_static_member_should_have_revoked_are_free(groups: Groups) -> None:
    first = Member(groups, "a1", "orders", instance_id="a", slow=True).join()
    second = Member(groups, "b1", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    assert groups.group().members["a1"].state is MemberState.UNREVOKED_PARTITIONS
    second.heartbeat()
    assert second.owned == set()
    first.leave(-2)
    second.heartbeat()
    assert len(second.owned) == 2
    again = Member(groups, "a2", "orders", instance_id="a").join()
    assert len(again.owned) == 2
    assert groups.group().state == "Stable"


def test_a_static_member_that_comes_back_with_another_subscription_gets_a_new_assignment() -> None:
    groups = Groups(Topics(orders=2, payments=2))
    first = Member(groups, "a1", "orders", instance_id="a").join()
    first.leave(-2)
    again = Member(groups, "a2", "payments", instance_id="a").join()
    settle(groups, again)
    assert again.partitions("payments") == {0, 1}
    assert again.partitions("orders") == set()


def test_a_replaced_static_member_is_known_after_a_reload(
    groups: Groups, pair: tuple[Member, Member]
) -> None:
    first, _ = pair
    first.leave(-2)
    groups.restart()
    again = Member(groups, "a2", "orders", instance_id="a").join()
    assert len(again.owned) == 2
    assert groups.rebuilt(groups.fresh()).durable_state() == groups.machine.durable_state()
