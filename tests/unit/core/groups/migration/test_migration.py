"""Online upgrade and downgrade of groups between the protocols (KIP-848)."""

from typing import Any

import pytest
from tests.unit.core.groups.consumer.consumer_groups import GROUP, Member, Topics, rejected
from tests.unit.core.groups.migration.mixed_groups import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicConsumer,
    MixedGroups,
    run,
    subscription,
)

from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import (
    Client,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    SyncGroup,
)
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import MemberState
from ottla.core.groups.consumer_protocol import read_assignment, write_assignment
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)

COOPERATIVE = pytest.mark.parametrize("cooperative", [True, False])


def groups_with(partitions: int = 4, **settings: Any) -> MixedGroups:
    return MixedGroups(Topics(t=partitions), **settings)


def classic_group(groups: MixedGroups, *names: str, **fields: Any) -> list[ClassicConsumer]:
    members = [ClassicConsumer(groups, name, "t", **fields) for name in names]
    run(groups, *members, rounds=12)
    assert sorted(index for member in members for index in member.partitions("t")) == [0, 1, 2, 3]
    return members


def static_classic(groups: MixedGroups, name: str, instance_id: str) -> ClassicConsumer:
    return ClassicConsumer(groups, name, "t", instance_id=instance_id)


def rebuilt_equals_live(groups: MixedGroups) -> None:
    rebuilt = groups.rebuilt(groups.fresh())
    rebuilt.validate()
    assert rebuilt.durable_state() == groups.machine.durable_state()


# -- empty groups


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_first_member() -> None:
    groups = groups_with()
    (classic,) = classic_group(groups, "a")
    classic.leave()
    assert groups.classic_group().is_empty
    member = Member(groups, "c", "t").join()
    assert member.partitions("t") == {0, 1, 2, 3}
    assert (GroupMetadataKey(group=GROUP), None) in groups.records
    rebuilt_equals_live(groups)


def test_an_empty_consumer_group_becomes_a_classic_group_with_its_first_member() -> None:
    groups = groups_with()
    member = Member(groups, "c", "t").join()
    member.leave()
    assert groups.group().is_empty
    classic_group(groups, "a", "b")
    assert isinstance(groups.any_group, ClassicGroup)
    rebuilt_equals_live(groups)


# -- upgrade


@COOPERATIVE
def test_the_first_member_of_the_consumer_protocol_upgrades_a_classic_group(cooperative: bool) -> None:
    groups = groups_with()
    classic = classic_group(groups, "a", "b", cooperative=cooperative)
    member = Member(groups, "c", "t").join()
    group = groups.group()
    assert group.num_classic_members == 2
    assert member.owned == set(), "a partition is not assigned before its owner revokes it"
    assert classic[0].heartbeat() is ErrorCode.rebalance_in_progress
    run(groups, member, *classic)
    everyone: list[Any] = [member, *classic]
    assert sorted(len(m.partitions("t")) for m in everyone) == [1, 1, 2]
    assert group.state == "Stable"
    assert all(consumer.heartbeat() is ErrorCode.none for consumer in classic)
    rebuilt_equals_live(groups)


def test_an_upgrade_writes_members_epoch_targets_and_current_assignments() -> None:
    groups = groups_with()
    classic = classic_group(groups, "a")
    generation = groups.classic_group().generation_id
    written = len(groups.records)
    Member(groups, "c", "t").join()
    keys = [type(key) for key, _ in groups.records[written : written + 6]]
    assert keys == [
        GroupMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    values = [value for _, value in groups.records[written : written + 6]]
    assert values[0] is None
    assert values[1].subscribed_topic_names == ("t",)
    assert values[1].classic_member_metadata.session_timeout_ms == SESSION_MS
    assert values[2].epoch == values[4].assignment_epoch == values[5].member_epoch == generation
    assert values[3].topic_partitions[0].partitions == (0, 1, 2, 3)
    assert values[5].assigned_partitions[0].partitions == (0, 1, 2, 3)
    assert classic[0].member_id in groups.group().members


def test_waiting_members_of_an_upgraded_group_must_rejoin() -> None:
    groups = groups_with()
    classic = classic_group(groups, "a", "b")
    classic[0].join()
    waiting = classic[0].waits_for
    assert waiting not in groups.replies
    Member(groups, "c", "t").join()
    assert waiting is not None
    response = groups.replies[waiting]
    assert (response.error_code, response.member_id) == (
        ErrorCode.rebalance_in_progress,
        classic[0].member_id,
    )
    classic[0].listen()
    classic[0].act()
    assert classic[0].joined is not None


def test_a_group_that_has_never_been_stable_can_be_upgraded() -> None:
    groups = groups_with(initial_rebalance_delay_ms=3000)
    classic = ClassicConsumer(groups, "a", "t")
    classic.act()
    classic.act()
    assert groups.classic_group().protocol_name is None
    member = Member(groups, "c", "t").join()
    run(groups, member, classic)
    assert sorted((len(member.owned), len(classic.owned))) == [2, 2]


def test_a_classic_group_that_all_members_left_before_its_first_generation_counts_as_empty() -> None:
    groups = groups_with(initial_rebalance_delay_ms=3000)
    classic = ClassicConsumer(groups, "a", "t")
    classic.act()
    classic.act()
    classic.leave()
    assert groups.classic_group().is_rebalancing
    assert len(Member(groups, "c", "t").join().owned) == 4
    rebuilt_equals_live(groups)


def test_owned_partitions_of_a_cooperative_member_are_known_even_if_its_assignment_was_dropped() -> None:
    groups = groups_with()
    first, second = classic_group(groups, "a", "b")
    first.join()
    second.join()
    first.listen()
    assert groups.classic_group().state.value == "CompletingRebalance"
    newcomer = ClassicConsumer(groups, "n", "t")
    newcomer.act()
    newcomer.act()
    assert {m.assignment for m in groups.classic_group().members.values()} == {b""}
    member = Member(groups, "c", "t").join()
    assert member.owned == set(), "the others still consume everything"
    run(groups, member, first, second, newcomer)
    assert [len(m.owned) for m in (member, first, second, newcomer)] == [1, 1, 1, 1]


def test_a_member_keeps_its_partitions_until_it_knows_that_the_leader_reassigned_them() -> None:
    groups = groups_with(8)
    members = [ClassicConsumer(groups, name, "t") for name in ("a", "b")]
    run(groups, *members, rounds=12)
    members.append(ClassicConsumer(groups, "n", "t"))
    for member in reversed(members):
        member.act()
        member.act()
    (leader,) = (m for m in members if m.member_id == groups.classic_group().leader_id)
    (late,) = (m for m in members if m.owned and m is not leader)
    leader.listen()
    leader.act()
    assert groups.classic_group().state.value == "Stable"
    assert late.partitions("t") == {0, 2, 4, 6}, (
        "the leader has reassigned some, and this member does not know it yet"
    )
    for member in members:
        if member is not late:
            member.leave()
    newcomer = Member(groups, "c", "t").join()
    assert newcomer.partitions("t") == {1, 7}
    run(groups, newcomer, late)
    assert [len(m.owned) for m in (newcomer, late)] == [4, 4]
    rebuilt_equals_live(groups)


def test_a_static_member_changes_its_protocol_when_it_restarts() -> None:
    groups = groups_with()
    one, two = static_classic(groups, "a", "one"), static_classic(groups, "b", "two")
    run(groups, one, two, rounds=12)
    had = one.partitions("t")
    restarted = Member(groups, "c", "t", instance_id="one").join()
    assert restarted.partitions("t") == had, "it keeps its place and its partitions"
    run(groups, restarted, two)
    assert restarted.partitions("t") == had
    assert groups.group().num_classic_members == 1
    again = Member(groups, "d", "t", instance_id="two").join()
    run(groups, restarted, again)
    assert groups.group().num_classic_members == 0
    rebuilt_equals_live(groups)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_is_not_upgraded_if_the_policy_forbids_it(policy: str) -> None:
    groups = groups_with(consumer_migration_policy=policy)
    classic_group(groups, "a")
    written = len(groups.records)
    with rejected(ErrorCode.group_id_not_found, "online upgrade is disabled"):
        Member(groups, "c", "t").join()
    assert isinstance(groups.any_group, ClassicGroup)
    assert len(groups.records) == written


def classic_with(
    groups: MixedGroups, protocol_type: str, metadata: bytes, assignment: bytes = b"", assignor: str = "own"
) -> None:
    joined = groups.decide(
        JoinGroup(
            group_id=GROUP,
            member_id="",
            new_member_id="a",
            client=Client("client", "/127.0.0.1"),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=protocol_type,
            protocols=((assignor, metadata),),
        )
    )
    groups.advance(0)
    assert groups.replies[joined].generation_id == 1
    groups.ask(SyncGroup(group_id=GROUP, generation_id=1, member_id="a", assignments=(("a", assignment),)))


GOOD = subscription(1, ("t",), {}, -1)
WITH_USER_DATA = write_assignment(1, {"t": (0, 1, 2, 3)})[:-4] + b"\x00\x00\x00\x01x"


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assignment", "why"),
    [
        ("connect", GOOD, b"", "does not use the consumer embedded protocol"),
        ("consumer", b"\x00", b"", "malformed"),
        ("consumer", GOOD, b"\x00\x01\x02", "malformed"),
        ("consumer", GOOD, WITH_USER_DATA, "custom assignor"),
    ],
)
def test_a_group_that_cannot_be_upgraded_does_not_change(
    protocol_type: str, metadata: bytes, assignment: bytes, why: str
) -> None:
    groups = groups_with()
    classic_with(groups, protocol_type, metadata, assignment)
    before = groups.machine.durable_state()
    with rejected(ErrorCode.group_id_not_found, why):
        Member(groups, "c", "t").join()
    assert groups.machine.durable_state() == before
    assert groups.ask(Heartbeat(group_id=GROUP, generation_id=1, member_id="a")) is None


def test_the_user_data_of_librdkafkas_sticky_assignor_does_not_prevent_an_upgrade() -> None:
    groups = groups_with()
    classic_with(groups, "consumer", GOOD, WITH_USER_DATA, assignor="cooperative-sticky")
    Member(groups, "c", "t").join()
    (partitions,) = groups.group().members["a"].assigned.values()
    assert set(partitions) == {0, 1, 2, 3}


def test_a_group_that_would_be_too_large_is_not_upgraded() -> None:
    groups = groups_with(consumer_max_size=2)
    classic_group(groups, "a", "b")
    with rejected(ErrorCode.group_max_size_reached):
        Member(groups, "c", "t").join()
    assert isinstance(groups.any_group, ClassicGroup)
    groups = groups_with(consumer_max_size=1)
    classic_group(groups, "a", "b")
    with rejected(ErrorCode.group_id_not_found, "exceeds the consumer group maximum size"):
        Member(groups, "c", "t").join()


def test_a_partition_that_a_leader_assigned_twice_has_one_owner_after_the_upgrade() -> None:
    groups = groups_with()
    first, second = classic_group(groups, "a", "b")
    group = groups.classic_group()
    for member in group.members.values():
        member.assignment = write_assignment(1, {"t": (0, 1), "gone": (0,)})
    group.last_written = group.snapshot()
    Member(groups, "c", "t").join()
    groups.machine.validate()
    upgraded = groups.group().members
    assert [len(upgraded[m.member_id].assigned) for m in (first, second)] == [1, 0]


# -- classic members in a consumer group


def mixed(groups: MixedGroups, **fields: Any) -> tuple[Member, ClassicConsumer]:
    """A stable consumer group with one member of each protocol."""
    member = Member(groups, "c", "t").join()
    classic = ClassicConsumer(groups, "a", "t", **fields)
    run(groups, member, classic)
    assert groups.group().state == "Stable"
    return member, classic


@COOPERATIVE
def test_a_classic_member_joins_a_consumer_group(cooperative: bool) -> None:
    groups = groups_with()
    member, classic = mixed(groups, cooperative=cooperative)
    assert member.partitions("t") | classic.partitions("t") == {0, 1, 2, 3}
    assert len(classic.owned) == 2
    assert groups.described().members[1].member_type == 0
    rebuilt_equals_live(groups)


def test_a_classic_member_of_a_consumer_group_never_leads() -> None:
    groups = groups_with()
    Member(groups, "c", "t").join()
    classic = ClassicConsumer(groups, "a", "t")
    classic.join()
    classic.join()
    assert classic.joined is not None
    assert (classic.joined.leader, classic.joined.members) == ("", ())
    assert classic.joined.generation_id == groups.group().members[classic.member_id].member_epoch


def test_a_classic_member_must_join_again_with_its_new_id() -> None:
    groups = groups_with()
    Member(groups, "c", "t").join()
    classic = ClassicConsumer(groups, "a", "t")
    classic.join()
    assert classic.member_id
    assert classic.joined is None
    assert classic.member_id not in groups.group().members


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"protocols": (("range", b"\x00"),)}, {"protocols": ()}]
)
def test_a_member_of_another_protocol_type_cannot_join(fields: dict[str, Any]) -> None:
    groups = groups_with()
    Member(groups, "c", "t").join()
    before = groups.machine.durable_state()
    values: dict[str, Any] = {"protocol_type": "consumer", "protocols": (("range", GOOD),)} | fields
    with rejected(ErrorCode.inconsistent_group_protocol):
        groups.ask(
            JoinGroup(
                group_id=GROUP,
                member_id="x",
                new_member_id="",
                client=Client("client", "/127.0.0.1"),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                **values,
            )
        )
    assert groups.machine.durable_state() == before


def test_classic_members_need_one_protocol_in_common() -> None:
    groups = groups_with()
    mixed(groups, cooperative=True)
    eager = ClassicConsumer(groups, "e", "t", cooperative=False)
    eager.join()
    assert eager.member_id == ""


def test_a_full_consumer_group_rejects_classic_members() -> None:
    groups = groups_with(consumer_max_size=1)
    Member(groups, "c", "t").join()
    classic = ClassicConsumer(groups, "a", "t")
    classic.join()
    assert groups.group().members.keys() == {"c"}


def test_a_classic_member_with_another_generation_gets_illegal_generation() -> None:
    groups = groups_with()
    _, classic = mixed(groups)
    classic.generation_id -= 1
    assert classic.heartbeat() is ErrorCode.illegal_generation


def test_a_member_of_the_consumer_protocol_is_unknown_to_the_classic_requests() -> None:
    groups = groups_with()
    member, _ = mixed(groups)
    for command in (
        Heartbeat(group_id=GROUP, generation_id=member.epoch, member_id="c"),
        SyncGroup(group_id=GROUP, generation_id=member.epoch, member_id="c"),
        Heartbeat(group_id=GROUP, generation_id=member.epoch, member_id="nobody"),
    ):
        with rejected(ErrorCode.unknown_member_id):
            groups.ask(command)


def test_a_classic_member_that_syncs_with_another_protocol_is_rejected() -> None:
    groups = groups_with()
    _, classic = mixed(groups)
    right: dict[str, Any] = {
        "group_id": GROUP,
        "generation_id": classic.generation_id,
        "member_id": classic.member_id,
    }
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "range"}):
        with rejected(ErrorCode.inconsistent_group_protocol):
            groups.ask(SyncGroup(**(right | wrong)))
    assert groups.ask(SyncGroup(**right)).assignment


def test_a_classic_member_revokes_a_partition_before_another_gets_it() -> None:
    groups = groups_with()
    classic = ClassicConsumer(groups, "a", "t")
    run(groups, classic, rounds=5)
    member = Member(groups, "c", "t").join()
    classic.act()
    classic.act()
    assert groups.group().members[classic.member_id].state is MemberState.UNREVOKED_PARTITIONS
    assert member.report().owned == set()
    classic.act()
    assert len(classic.owned) == 2, "it has revoked, but has not reported it yet"
    assert member.report().owned == set()
    classic.act()
    assert len(member.report().owned) == 2


def test_a_classic_member_is_asked_to_rejoin_when_all_that_it_waits_for_is_free() -> None:
    groups = groups_with()
    slow = Member(groups, "c", "t", slow=True).join()
    classic = ClassicConsumer(groups, "a", "t")
    run(groups, classic, rounds=4)
    slow.heartbeat()
    assert groups.group().members[classic.member_id].state is MemberState.UNRELEASED_PARTITIONS
    assert classic.heartbeat() is ErrorCode.none
    slow.revoke()
    slow.report()
    assert classic.heartbeat() is ErrorCode.rebalance_in_progress
    run(groups, slow, classic, rounds=3)
    assert len(classic.owned) == 2


def test_a_classic_member_without_heartbeats_is_removed_after_its_own_session_timeout() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    classic.heartbeat()
    groups.advance(SESSION_MS - 1)
    assert classic.member_id in groups.group().members
    groups.advance(1)
    assert groups.group().members.keys() == {"c"}
    run(groups, member, rounds=5)
    assert len(member.owned) == 4


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    another = Member(groups, "d", "t").join()
    for _ in range(REBALANCE_MS // 5000):
        assert classic.member_id in groups.group().members
        assert classic.heartbeat() is ErrorCode.rebalance_in_progress
        classic.is_stable = True
        groups.advance(5000)
        member.report(), another.report()
    assert groups.group().members.keys() == {"c", "d"}


def test_a_classic_member_that_does_not_sync_in_time_is_removed() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    classic.join()
    for _ in range(REBALANCE_MS // 5000):
        assert classic.member_id in groups.group().members
        heartbeat = Heartbeat(
            group_id=GROUP, generation_id=classic.generation_id, member_id=classic.member_id
        )
        groups.decide(heartbeat)
        groups.advance(5000)
        member.report()
    assert classic.member_id not in groups.group().members


def test_a_static_classic_member_that_restarts_keeps_its_place() -> None:
    groups = groups_with()
    member, classic = mixed(groups, instance_id="one")
    had = classic.partitions("t")
    old = Heartbeat(
        group_id=GROUP,
        generation_id=classic.generation_id,
        member_id=classic.member_id,
        group_instance_id="one",
    )
    restarted = static_classic(groups, "b", "one")
    run(groups, member, restarted, rounds=3)
    assert restarted.partitions("t") == had
    with rejected(ErrorCode.fenced_instance_id):
        groups.ask(old)


def test_a_classic_member_that_was_removed_and_still_owns_partitions_is_unknown() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    groups.advance(SESSION_MS)
    run(groups, member, rounds=3)
    assert len(member.owned) == 4
    classic.join()
    assert (classic.member_id, classic.owned) == ("", set())
    run(groups, member, classic)
    assert len(classic.owned) == 2


def test_leave_group_returns_a_result_for_each_member_of_a_consumer_group() -> None:
    groups = groups_with()
    member, classic = mixed(groups, instance_id="one")
    other = ClassicConsumer(groups, "o", "t")
    run(groups, member, classic, other)
    leaving = (
        LeavingMember("", "one"),
        LeavingMember("nobody"),
        LeavingMember(other.member_id, "two"),
        LeavingMember(other.member_id),
    )
    left = groups.ask(LeaveGroup(group_id=GROUP, members=leaving))
    assert [one.error_code for one in left] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
    ]
    assert groups.group().members.keys() == {"c"}


def test_a_classic_member_commits_with_its_generation() -> None:
    groups = groups_with()
    _, classic = mixed(groups)
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": classic.member_id,
        "group_instance_id": None,
        "offsets": (),
    }
    groups.ask(OffsetCommit(generation_or_member_epoch=classic.generation_id, **fields))
    with rejected(ErrorCode.illegal_generation):
        groups.ask(OffsetCommit(generation_or_member_epoch=classic.generation_id + 1, **fields))


# -- downgrade


def test_when_the_last_consumer_protocol_member_leaves_the_group_becomes_classic() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    member.leave()
    group = groups.classic_group()
    assert group.state.value == "PreparingRebalance"
    assert classic.heartbeat() is ErrorCode.rebalance_in_progress
    run(groups, classic, rounds=5)
    assert len(classic.owned) == 4
    assert groups.classic_group().state.value == "Stable"
    rebuilt_equals_live(groups)


def test_when_the_session_of_the_last_consumer_protocol_member_expires_the_group_becomes_classic() -> None:
    groups = groups_with()
    _, classic = mixed(groups)
    run(groups, classic, rounds=60)
    assert isinstance(groups.any_group, ClassicGroup)
    assert len(classic.owned) == 4


def test_a_downgrade_that_a_reload_interrupts_ends_in_a_rebalance() -> None:
    groups = groups_with()
    member, classic = mixed(groups)
    member.leave()
    groups.restart()
    assert groups.classic_group().is_rebalancing
    run(groups, classic, rounds=5)
    assert len(classic.owned) == 4


@pytest.mark.parametrize("instance_id", [None, "one"])
@pytest.mark.parametrize("reloads", [True, False])
@COOPERATIVE
def test_a_member_keeps_its_partitions_if_the_group_changes_back_and_forth_before_it_rejoins(
    cooperative: bool, reloads: bool, instance_id: str | None
) -> None:
    groups = groups_with()
    (classic,) = classic_group(groups, "a", cooperative=cooperative, instance_id=instance_id)
    first = Member(groups, "c", "t").join()
    assert sum(map(len, groups.group().target(classic.member_id).values())) == 2
    first.leave()
    if reloads:
        groups.restart()
    assert groups.classic_group().is_rebalancing
    second = Member(groups, "d", "t").join()
    assert second.owned == set(), "the classic member still consumes everything"
    run(groups, second, classic)
    assert [len(second.owned), len(classic.owned)] == [2, 2]
    rebuilt_equals_live(groups)


def test_a_member_keeps_partitions_that_it_was_asked_to_revoke_if_the_group_changes_back_and_forth() -> None:
    groups = groups_with()
    (classic,) = classic_group(groups, "a")
    first = Member(groups, "c", "t").join()
    classic.join()
    assert groups.group().members[classic.member_id].state is MemberState.UNREVOKED_PARTITIONS
    first.leave()
    held = read_assignment(groups.classic_group().members[classic.member_id].assignment)
    assert held is not None
    assert held.partitions == (("t", (0, 1, 2, 3)),)
    second = Member(groups, "d", "t").join()
    assert (len(second.owned), len(classic.owned)) == (0, 4)
    run(groups, second, classic)
    assert [len(second.owned), len(classic.owned)] == [2, 2]
    rebuilt_equals_live(groups)


def test_a_member_does_not_claim_partitions_that_it_waits_for_when_the_group_becomes_classic() -> None:
    """They belong to the other classic member, which has not revoked them."""
    groups = groups_with()
    (owner,) = classic_group(groups, "a")
    first = Member(groups, "c", "t").join()
    waiting = ClassicConsumer(groups, "b", "t")
    waiting.join()
    waiting.join()
    assert groups.group().members[waiting.member_id].state is MemberState.UNRELEASED_PARTITIONS
    first.leave()
    second = Member(groups, "d", "t").join()
    members = groups.group().members
    assert [len(members[m.member_id].assigned) for m in (owner, waiting)] == [1, 0]
    assert second.owned == set()
    run(groups, second, owner, waiting)
    assert sorted(len(m.partitions("t")) for m in (second, owner, waiting)) == [1, 1, 2]


def test_a_static_member_that_restarts_during_a_reconciliation_leaves_the_others_their_partitions() -> None:
    groups = groups_with()
    classic = static_classic(groups, "b", "two")
    run(groups, classic, rounds=12)
    Member(groups, "c", "t", instance_id="one").join()
    restarted = static_classic(groups, "a", "one")
    restarted.join()
    assert groups.classic_group().is_rebalancing, "the group was not stable"
    again = Member(groups, "d", "t", instance_id="one").join()
    assert (again.owned, len(classic.owned)) == (set(), 4)
    run(groups, again, classic)
    assert [len(again.owned), len(classic.owned)] == [2, 2]
    rebuilt_equals_live(groups)


def test_a_static_member_that_restarts_as_a_classic_one_downgrades_the_group_without_a_rebalance() -> None:
    groups = groups_with()
    member = Member(groups, "c", "t", instance_id="one").join()
    classic = static_classic(groups, "b", "two")
    run(groups, member, classic)
    had = member.partitions("t")
    restarted = static_classic(groups, "a", "one")
    restarted.join()
    group = groups.classic_group()
    assert group.state.value == "Stable"
    assert restarted.joined is not None
    assert (restarted.joined.leader, restarted.joined.skip_assignment) == (restarted.member_id, True)
    run(groups, restarted, classic, rounds=3)
    assert restarted.partitions("t") == had
    assert classic.partitions("t") == {0, 1, 2, 3} - had
    assert groups.classic_group() is group
    rebuilt_equals_live(groups)


def test_a_static_member_that_restarts_with_another_subscription_makes_the_classic_group_rebalance() -> None:
    groups = MixedGroups(Topics(t=4, u=2))
    member = Member(groups, "c", "t", instance_id="one").join()
    classic = static_classic(groups, "b", "two")
    run(groups, member, classic)
    restarted = ClassicConsumer(groups, "a", "t", "u", instance_id="one")
    restarted.join()
    assert groups.classic_group().is_rebalancing
    run(groups, restarted, classic, rounds=8)
    assert restarted.partitions("u") == {0, 1}
    assert restarted.partitions("t") | classic.partitions("t") == {0, 1, 2, 3}


def test_the_only_member_of_a_group_changes_back_to_the_classic_protocol() -> None:
    groups = groups_with()
    Member(groups, "c", "t", instance_id="one").join()
    restarted = static_classic(groups, "a", "one")
    run(groups, restarted, rounds=3)
    assert isinstance(groups.any_group, ClassicGroup)
    assert len(restarted.owned) == 4


@pytest.mark.parametrize("settings", [{"consumer_migration_policy": "upgrade"}, {"max_size": 1}])
def test_a_consumer_group_of_classic_members_stays_if_a_downgrade_is_not_allowed(
    settings: dict[str, Any],
) -> None:
    groups = groups_with(**settings)
    member, first = mixed(groups)
    second = ClassicConsumer(groups, "b", "t")
    run(groups, member, first, second)
    member.leave()
    run(groups, first, second)
    assert isinstance(groups.any_group, ConsumerGroup)
    assert first.partitions("t") | second.partitions("t") == {0, 1, 2, 3}


def test_a_group_is_listed_with_its_present_type() -> None:
    groups = groups_with()
    member, classic = mixed(groups)

    def listed() -> tuple[str, str]:
        (group,) = groups.ask(ListGroups())
        return group.group_type.lower(), group.protocol_type

    assert listed() == ("consumer", "consumer")
    member.leave()
    assert listed() == ("classic", "consumer")
    assert classic.member_id in groups.classic_group().members


def test_a_classic_request_to_an_empty_group_gets_unknown_member_id() -> None:
    groups = groups_with()
    Member(groups, "c", "t").join().leave()
    for command in (
        Heartbeat(group_id=GROUP, generation_id=1, member_id="a"),
        SyncGroup(group_id=GROUP, generation_id=1, member_id="a"),
    ):
        with pytest.raises(KafkaError) as rejection:
            groups.ask(command)
        assert rejection.value.code is ErrorCode.unknown_member_id
    left = groups.ask(LeaveGroup(group_id=GROUP, members=(LeavingMember("a"),)))
    assert left[0].error_code is ErrorCode.unknown_member_id
