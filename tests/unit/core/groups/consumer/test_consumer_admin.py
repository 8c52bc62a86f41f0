"""Administration of consumer groups, and who may commit offsets (KIP-848, KIP-1251)."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.groups.consumer.consumer_groups import GROUP, Groups, Member, Topics, rejected, settle

from ottla.core.coordination import Decision
from ottla.core.groups.commands import (
    ConsumerAssignment,
    DescribeConsumerGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from ottla.model.errors import ErrorCode
from ottla.protocol.group_records.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


@pytest.fixture
def groups() -> Groups:
    return Groups(Topics(orders=4, payments=1))


def commit(groups: Groups, member_id: str, epoch: int, *partitions: int, **fields: Any) -> None:
    command = OffsetCommit(
        group_id=GROUP,
        member_id=member_id,
        group_instance_id=None,
        generation_or_member_epoch=epoch,
        offsets=tuple(OffsetToCommit("orders", partition, 1) for partition in partitions),
        **fields,
    )
    groups.group().check_offset_commit(command, Decision(groups.machine.replay), groups.now_ms)


def commit_in_transaction(groups: Groups, member_id: str, epoch: int, *partitions: int) -> None:
    command = TxnOffsetCommit(
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        member_id=member_id,
        group_instance_id=None,
        generation_id=epoch,
        offsets=tuple(OffsetToCommit("orders", partition, 1) for partition in partitions),
    )
    groups.group().check_offset_commit(command, Decision(groups.machine.replay), groups.now_ms)


def fetch(groups: Groups, member_id: str | None, epoch: int) -> None:
    command = OffsetFetch(group_id=GROUP, partitions=None, member_id=member_id, member_epoch=epoch)
    groups.group().check_offset_fetch(command)


def test_a_described_group_contains_epochs_members_and_both_assignments(groups: Groups) -> None:
    first = Member(groups, "a", "orders", rack_id="r1").join()
    Member(groups, "b", "orders", "payments").join()
    groups.advance(1000)
    first.heartbeat()
    described = groups.described()
    assert described.state == "Reconciling"
    assert described.assignor_name == "uniform"
    assert described.group_epoch == described.assignment_epoch == groups.group().group_epoch
    a, b = described.members
    orders = groups.topics.id("orders")
    assert (a.member_id, a.rack_id, a.member_type) == ("a", "r1", 1)
    assert a.subscribed_topic_names == ("orders",)
    # As Kafka: partitions pending revocation are shown.
    assert a.assignment == (ConsumerAssignment(orders, "orders", (0, 1, 2, 3)),)
    assert a.target_assignment == (ConsumerAssignment(orders, "orders", (0, 1, 2)),)
    assert b.assignment == ()
    assert sorted(
        p
        for topic in (*a.target_assignment, *b.target_assignment)
        if topic.topic_id == orders
        for p in topic.partitions
    ) == [0, 1, 2, 3]
    assert ConsumerAssignment(groups.topics.id("payments"), "payments", (0,)) in b.target_assignment


def test_an_unknown_consumer_group_cannot_be_described(groups: Groups) -> None:
    with rejected(ErrorCode.group_id_not_found, "nowhere"):
        groups.ask(DescribeConsumerGroup(group_id="nowhere"))


def test_a_group_is_listed_with_its_state_and_type(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    assert groups.group().as_listed_group() == (GROUP, "consumer", "Stable", "consumer")
    Member(groups, "b", "orders").join()
    assert groups.group().as_listed_group().state == "Assigning"
    groups.advance(1000)
    assert groups.group().as_listed_group().state == "Reconciling"
    member.leave()
    groups.heartbeat("b", -1)
    assert groups.group().as_listed_group().state == "Empty"


def test_only_an_empty_group_is_deleted(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    with rejected(ErrorCode.non_empty_group):
        groups.group().check_delete()
    member.leave()
    groups.group().check_delete()


def test_tombstones_are_written_for_everything_and_the_groups_own_comes_last(groups: Groups) -> None:
    Member(groups, "a", "orders", regex="pay.*").join()
    decision: Any = Decision(groups.machine.replay)
    groups.group().write_tombstones(decision)
    assert [type(key) for key, _ in decision.records] == [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupMetadataKey,
    ]
    assert all(value is None for _, value in decision.records)
    assert groups.machine.durable_state() == {}
    written = {key for key, value in groups.records}
    assert {key for key, _ in decision.records} >= written


def test_tombstones_of_unknown_groups_are_ignored(groups: Groups) -> None:
    Member(groups, "a", "orders").join()
    fresh = groups.fresh()
    for key, _ in groups.records:
        fresh.replay(key, None)
    assert fresh.durable_state() == {}


def test_offsets_of_subscribed_topics_are_kept_and_others_expire(groups: Groups) -> None:
    Member(groups, "a", "orders").join()
    assert groups.group().is_subscribed_to("orders")
    assert not groups.group().is_subscribed_to("payments")
    expiry = groups.group().offset_expiry()
    assert expiry is not None
    assert expiry.since_ms is None
    groups.group().check_offset_delete()


def test_a_member_commits_with_its_epoch(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    commit(groups, "a", member.epoch, 0)
    with rejected(ErrorCode.unknown_member_id):
        commit(groups, "stranger", member.epoch, 0)
    with rejected(ErrorCode.stale_member_epoch, "newer"):
        commit(groups, "a", member.epoch + 1, 0)
    with rejected(ErrorCode.unsupported_version, "version 9"):
        commit(groups, "a", member.epoch, 0, supports_stale_member_epoch=False)


def test_an_older_epoch_is_accepted_for_partitions_that_the_member_has_had_since(groups: Groups) -> None:
    first, second = Member(groups, "a", "orders").join(), Member(groups, "b", "orders").join()
    before = first.epoch
    settle(groups, first, second)
    assert first.epoch > before
    commit(groups, "a", before, *first.partitions("orders"))
    with rejected(ErrorCode.stale_member_epoch, "is not assigned or pending revocation"):
        commit(groups, "a", before, *second.partitions("orders"))
    with rejected(ErrorCode.stale_member_epoch, "is older than assignment epoch"):
        commit(groups, "b", second.epoch - 1, *second.partitions("orders"))
    with rejected(ErrorCode.stale_member_epoch, "is not assigned"):
        commit_of_unknown_topic = OffsetToCommit("unknown", 0, 1)
        command = OffsetCommit(
            group_id=GROUP,
            member_id="a",
            group_instance_id=None,
            generation_or_member_epoch=before,
            offsets=(commit_of_unknown_topic,),
        )
        groups.group().check_offset_commit(command, Decision(groups.machine.replay), groups.now_ms)


def test_offsets_of_partitions_pending_revocation_may_be_committed(groups: Groups) -> None:
    first = Member(groups, "a", "orders", slow=True).join()
    Member(groups, "b", "orders").join()
    groups.advance(1000)
    first.heartbeat()
    assert len(first.assigned) == 2
    commit(groups, "a", first.epoch, 0, 1, 2, 3)


def test_any_client_may_commit_offsets_of_an_empty_group(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    with rejected(ErrorCode.unknown_member_id):
        commit(groups, "", -1, 0)
    member.leave()
    commit(groups, "", -1, 0)


def test_a_producer_may_commit_without_a_member_and_gets_illegal_generation(groups: Groups) -> None:
    first, second = Member(groups, "a", "orders").join(), Member(groups, "b", "orders").join()
    before = first.epoch
    settle(groups, first, second)
    commit_in_transaction(groups, "", -1, 0)
    commit_in_transaction(groups, "a", first.epoch, 0)
    commit_in_transaction(groups, "a", before, *first.partitions("orders"))
    with rejected(ErrorCode.illegal_generation):
        commit_in_transaction(groups, "a", first.epoch + 1, 0)
    with rejected(ErrorCode.illegal_generation):
        commit_in_transaction(groups, "a", before, *second.partitions("orders"))
    with rejected(ErrorCode.unknown_member_id):
        commit_in_transaction(groups, "stranger", 1, 0)


def test_offsets_are_fetched_with_the_members_epoch_or_without_any(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    fetch(groups, None, -1)
    fetch(groups, "a", member.epoch)
    with rejected(ErrorCode.unknown_member_id):
        fetch(groups, "stranger", member.epoch)
    with rejected(ErrorCode.stale_member_epoch):
        fetch(groups, "a", member.epoch - 1)


def test_a_classic_member_gets_illegal_generation_instead_of_stale_member_epoch(groups: Groups) -> None:
    member = Member(groups, "a", "orders").join()
    key, value = next(
        (key, value) for key, value in groups.records if isinstance(key, ConsumerGroupMemberMetadataKey)
    )
    classic = ClassicMemberMetadata(session_timeout_ms=10_000, supported_protocols=())
    groups.machine.replay(key, replace(value, classic_member_metadata=classic))
    assert groups.group().num_classic_members == 1
    commit(groups, "a", member.epoch, 0, supports_stale_member_epoch=False)
    with rejected(ErrorCode.illegal_generation):
        commit(groups, "a", member.epoch + 1, 0)
    with rejected(ErrorCode.illegal_generation):
        fetch(groups, "a", member.epoch + 1)
    assert groups.described().members[0].member_type == 0
    member.heartbeat()  # from now on it uses the consumer protocol
    assert groups.group().num_classic_members == 0
