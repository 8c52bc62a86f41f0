"""ConsumerGroupHeartbeat: its checks and its response (KIP-848)."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.groups.consumer.consumer_groups import GROUP, Groups, Member, Topics, rejected, settle

from ottla.core.groups.commands import Client, ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.core.groups.consumer.timers import AssignmentDue, RevocationTimedOut, SessionExpired
from ottla.core.groups.settings import GroupOverrides
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

JOIN: dict[str, Any] = {
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ("orders",),
    "topic_partitions": (),
}


@pytest.fixture
def groups() -> Groups:
    return Groups(Topics(orders=6, payments=3))


def kinds(groups: Groups) -> list[type]:
    return [type(key) for key, _ in groups.records]


def test_a_member_joins_with_epoch_zero_and_gets_its_assignment_at_once(groups: Groups) -> None:
    response = groups.heartbeat("a", 0, **JOIN)
    assert response.member_id == "a"
    assert response.member_epoch > 0
    assert response.heartbeat_interval_ms == 5000
    assert response.assignment == (TopicIdPartitions(groups.topics.id("orders"), (0, 1, 2, 3, 4, 5)),)
    assert groups.group().state == "Stable"


def test_joining_writes_member_group_target_and_current_assignment_in_this_order(
    groups: Groups,
) -> None:
    groups.heartbeat("a", 0, **JOIN)
    assert kinds(groups) == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_without_changes_writes_nothing_and_returns_no_assignment(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    written = len(groups.records)
    response = groups.heartbeat("a", member.epoch)
    assert response.assignment is None
    assert response.member_epoch == member.epoch
    assert len(groups.records) == written


def test_a_full_request_gets_the_assignment_again(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    response = groups.heartbeat(
        "a",
        member.epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=member.told_owned(),
    )
    assert response.assignment == member.told_owned()


def test_a_member_may_join_without_subscriptions(groups: Groups) -> None:
    response = groups.heartbeat("a", 0, **{**JOIN, "subscribed_topic_names": ()})
    assert response.member_epoch > 0
    assert response.assignment == ()
    assert groups.group().state == "Stable"


def test_two_members_share_the_partitions_once_the_first_has_revoked(groups: Groups) -> None:
    first = Member(groups, "a", "orders").join()
    second = Member(groups, "b", "orders").join()
    settle(groups, first, second)
    assert first.partitions("orders") | second.partitions("orders") == set(range(6))
    assert len(first.owned) == len(second.owned) == 3
    assert first.epoch == second.epoch == groups.group().assignment_epoch


def test_a_group_may_override_the_heartbeat_interval() -> None:
    overrides = GroupOverrides(consumer_heartbeat_interval_ms=7000, consumer_session_timeout_ms=50_000)
    groups = Groups(Topics(orders=1), overrides=lambda group_id: overrides)
    assert Member(groups, "a", "orders").join().interval_ms == 7000
    groups.advance(49_999)
    assert "a" in groups.group().members
    groups.advance(1)
    assert groups.group().is_empty


def test_only_a_joining_member_creates_a_group(groups: Groups) -> None:
    with rejected(ErrorCode.group_id_not_found, GROUP):
        groups.heartbeat("a", 5)
    with rejected(ErrorCode.group_id_not_found):
        groups.heartbeat("a", -1)
    assert groups.records == []


def test_only_members_may_send_heartbeats(groups: Groups) -> None:
    Member(groups, "a", "orders").join()
    with rejected(ErrorCode.unknown_member_id, "stranger"):
        groups.heartbeat("stranger", 1)
    with rejected(ErrorCode.unknown_member_id):
        groups.heartbeat("stranger", -1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_request_is_rejected_and_changes_nothing(
    groups: Groups, fields: dict[str, Any], message: str
) -> None:
    valid: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "client": Client("client", "/127.0.0.1"),
        **JOIN,
    }
    with pytest.raises(KafkaError) as rejection:
        groups.ask(ConsumerGroupHeartbeat(**{**valid, **fields}))
    assert rejection.value.code is ErrorCode.invalid_request
    assert rejection.value.message == message
    assert groups.records == []


def test_a_joining_member_must_not_own_partitions(groups: Groups) -> None:
    owned = (TopicIdPartitions(groups.topics.id("orders"), (0,)),)
    with rejected(ErrorCode.invalid_request, "TopicPartitions must be empty"):
        groups.heartbeat("a", 0, **{**JOIN, "topic_partitions": owned})


def test_an_unknown_assignor_is_rejected_with_the_list_of_supported_ones(groups: Groups) -> None:
    with rejected(ErrorCode.unsupported_assignor, "Supported assignors: uniform, range."):
        groups.heartbeat("a", 0, server_assignor="sticky", **JOIN)


def test_the_consumer_protocol_can_be_disabled() -> None:
    groups = Groups(Topics(orders=1), rebalance_protocols=("classic",))
    with rejected(ErrorCode.unsupported_version, "group.coordinator.rebalance.protocols"):
        groups.heartbeat("a", 0, **JOIN)


def test_a_full_group_rejects_new_members_and_keeps_its_own() -> None:
    groups = Groups(Topics(orders=2), consumer_max_size=1)
    member = Member(groups, "a", "orders").join()
    with rejected(ErrorCode.group_max_size_reached, "1 members"):
        groups.heartbeat("b", 0, **JOIN)
    member.heartbeat()
    member.join()


def test_a_greater_epoch_than_the_members_is_fenced(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    with rejected(ErrorCode.fenced_member_epoch, "greater"):
        groups.heartbeat("a", member.epoch + 1)


def test_the_previous_epoch_is_accepted_because_the_response_may_have_been_lost(groups: Groups) -> None:
    first = Member(groups, "a", "orders").join()
    before = first.epoch
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    owned = (TopicIdPartitions(groups.topics.id("orders"), (0, 1, 2)),)
    first.report()
    first.revoke()
    advanced = groups.heartbeat("a", before, topic_partitions=owned)
    assert advanced.member_epoch > before
    again = groups.heartbeat("a", before, topic_partitions=owned)
    assert again.member_epoch == advanced.member_epoch
    with rejected(ErrorCode.fenced_member_epoch, "smaller"):
        groups.heartbeat("a", before)
    with rejected(ErrorCode.fenced_member_epoch, "smaller"):
        groups.heartbeat("a", before - 1, topic_partitions=owned)


def test_a_member_that_rejoins_keeps_its_assignment(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    epoch = member.epoch
    member.join()
    assert member.epoch == epoch
    assert member.partitions("orders") == set(range(6))


def test_a_member_that_leaves_frees_its_partitions_at_once(groups: Groups) -> None:
    first, second = Member(groups, "a", "orders").join(), Member(groups, "b", "orders").join()
    settle(groups, first, second)
    first.leave()
    second.heartbeat()
    assert second.partitions("orders") == set(range(6))
    second.leave()
    assert groups.group().state == "Empty"


def test_a_classic_member_without_heartbeats_is_removed_after_the_session_timeout(groups: Groups) -> None:
    first, second = Member(groups, "a", "orders").join(), Member(groups, "b", "orders").join()
    settle(groups, first, second)
    for _ in range(10):
        groups.advance(5000)
        second.heartbeat()
    assert second.partitions("orders") == set(range(6))
    with rejected(ErrorCode.unknown_member_id):
        first.heartbeat()


def test_sessions_restart_after_a_reload(groups: Groups) -> None:
    Member(groups, "a", "orders").join()
    groups.advance(44_000)
    groups.restart()
    groups.advance(44_000)
    assert "a" in groups.group().members
    groups.advance(1000)
    assert groups.group().is_empty


def test_fields_that_a_member_does_not_send_are_unchanged(groups: Groups) -> None:
    member = Member(groups, "a", "orders", rack_id="r1", server_assignor="range").join()
    groups.heartbeat("a", member.epoch, client=Client("renamed", "/10.0.0.1"))
    (described,) = groups.described().members
    assert described.client == Client("renamed", "/10.0.0.1")
    assert described.rack_id == "r1"
    assert described.subscribed_topic_names == ("orders",)
    assert groups.described().assignor_name == "range"


def test_the_assignor_is_the_one_that_most_members_ask_for(groups: Groups) -> None:
    Member(groups, "a", "orders", server_assignor="range").join()
    Member(groups, "b", "orders", server_assignor="uniform").join()
    assert groups.described().assignor_name == "uniform"
    Member(groups, "c", "orders", server_assignor="range").join()
    assert groups.described().assignor_name == "range"


def test_a_subscribed_topic_may_be_created_later(groups: Groups) -> None:
    member = Member(groups, "a", "orders", "later").join()
    assert member.partitions("orders") == set(range(6))
    groups.topics.create("later", 2)
    member.report()
    assert member.partitions("later") == {0, 1}


def test_a_topic_with_more_partitions_is_assigned_again_without_a_heartbeat(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    groups.topics.grow("orders", 8)
    groups.changed_topics()
    assert groups.group().state == "Stable"
    groups.advance(1100)
    assert groups.group().state == "Reconciling"
    member.heartbeat()
    assert member.partitions("orders") == set(range(8))


def test_a_change_of_a_topic_without_subscribers_changes_no_epoch(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    epoch = groups.group().group_epoch
    groups.topics.grow("payments", 9)
    groups.changed_topics()
    groups.advance(10_000)
    member.heartbeat()
    assert groups.group().group_epoch == epoch


def test_a_change_of_racks_causes_a_new_target(groups: Groups) -> None:
    groups.topics.create("racked", 1, (frozenset({"r1"}),))
    member = Member(groups, "a", "racked").join()
    epoch = groups.group().group_epoch
    groups.topics._by_name["racked"] = groups.topics._by_name["racked"]._replace(racks=(frozenset({"r2"}),))
    groups.topics.version += 1
    member.heartbeat()
    assert groups.group().group_epoch == epoch + 1


def test_a_deleted_topic_is_revoked(groups: Groups) -> None:
    member = Member(groups, "a", "orders", "payments", slow=True).join()
    groups.topics.delete("payments")
    groups.advance(1000)
    member.heartbeat()
    assert len(member.assigned) == 6
    member.revoke()
    member.report()
    assert groups.group().state == "Stable"


def test_groups_are_refreshed_in_limited_numbers_when_topics_change(groups: Groups) -> None:
    members = [f"m{number}" for number in range(250)]
    for member_id in members:
        groups.heartbeat(member_id, 0, group_id=f"group of {member_id}", **JOIN)
    groups.topics.grow("orders", 7)
    groups.changed_topics()
    written = len(groups.records)
    groups.advance(100)
    assert 0 < len(groups.records) - written < len(members) * 3
    groups.advance(200)
    for member_id in members:
        assert groups.group(f"group of {member_id}").state == "Reconciling"


def test_timers_of_removed_groups_and_members_do_nothing(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    written = len(groups.records)
    for group_id in (GROUP, "nowhere"):
        groups.decide(SessionExpired(group_id, "stranger"))
        groups.decide(RevocationTimedOut(group_id, "stranger", 1))
        groups.decide(RevocationTimedOut(group_id, "a", member.epoch))
        groups.decide(AssignmentDue(group_id))
    assert len(groups.records) == written


def test_a_member_in_an_unknown_state_is_fenced_until_it_owns_no_partitions(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    current = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    of_a_later_release = replace(groups.group().members["a"].current_assignment_value(), state=9)
    groups.records.append((current, of_a_later_release))
    groups.restart()
    written = len(groups.records)
    for heartbeat in (member.heartbeat, member.report, lambda: member.subscribe("payments")):
        with rejected(ErrorCode.fenced_member_epoch, "unknown state"):
            heartbeat()
    assert len(groups.records) == written
    member.join()
    assert member.partitions("payments") == set(range(3))
