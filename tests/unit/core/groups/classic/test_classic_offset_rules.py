"""The rules of classic groups for commits, deletion and expiry of offsets (KIP-211, KIP-496)."""

from typing import Any

import pytest
from tests.unit.core.groups.classic.classic_groups import DELAY_MS, GROUP, SESSION_MS, Shell

from ottla.core.coordination import Decision
from ottla.core.groups.classic.group import ClassicGroup
from ottla.core.groups.commands import ListedGroup, OffsetCommit, TxnOffsetCommit
from ottla.core.groups.group import OffsetExpiry
from ottla.model.errors import ErrorCode, KafkaError

SUBSCRIBED_TO_ORDERS = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x06orders" + b"\xff\xff\xff\xff"


@pytest.fixture
def shell() -> Shell:
    return Shell()


def commit(
    shell: Shell, member_id: str = "", generation: int = -1, instance_id: str | None = None
) -> ErrorCode:
    decision: Decision[Any, Any] = Decision(shell.machine.replay)
    command = OffsetCommit(
        group_id=GROUP,
        member_id=member_id,
        group_instance_id=instance_id,
        generation_or_member_epoch=generation,
        offsets=(),
    )
    try:
        shell.group().check_offset_commit(command, decision, shell.now_ms)
    except KafkaError as rejection:
        return rejection.code
    shell._perform(decision)
    return ErrorCode.none


def commit_in_transaction(shell: Shell, member_id: str = "", generation: int = -1) -> ErrorCode:
    decision: Decision[Any, Any] = Decision(shell.machine.replay)
    command = TxnOffsetCommit(
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        member_id=member_id,
        group_instance_id=None,
        generation_id=generation,
        offsets=(),
    )
    try:
        shell.group().check_offset_commit(command, decision, shell.now_ms)
    except KafkaError as rejection:
        return rejection.code
    return ErrorCode.none


def test_a_member_commits_in_its_generation(shell: Shell) -> None:
    shell.stable_group("a", "b")
    assert commit(shell, "a", 1) is ErrorCode.none


def test_a_commit_with_an_old_generation_gets_illegal_generation(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join("a")
    shell.sync_all("a")
    assert commit(shell, "a", 1) is ErrorCode.illegal_generation
    assert commit(shell, "a", 2) is ErrorCode.none


def test_a_commit_of_a_removed_member_gets_unknown_member_id(shell: Shell) -> None:
    shell.stable_group("a", "b")
    shell.leave("b")
    assert commit(shell, "b", 1) is ErrorCode.unknown_member_id


def test_a_commit_of_a_restarted_instance_with_its_old_member_id_is_fenced(shell: Shell) -> None:
    shell.join(new_id="a-1", group_instance_id="one")
    shell.advance(2 * DELAY_MS)
    shell.sync_all("a-1")
    shell.join(new_id="a-2", group_instance_id="one")
    assert commit(shell, "a-1", 1, "one") is ErrorCode.fenced_instance_id
    assert commit(shell, "a-2", 1, "one") is ErrorCode.none


def test_members_of_the_last_generation_may_commit_while_others_rejoin(shell: Shell) -> None:
    shell.stable_group("a", "b")
    shell.join(new_id="c")
    assert shell.group().is_rebalancing
    assert commit(shell, "a", 1) is ErrorCode.none


def test_a_commit_between_join_and_assignment_gets_rebalance_in_progress(shell: Shell) -> None:
    shell.join(new_id="a")
    shell.advance(DELAY_MS)
    assert commit(shell, "a", 1) is ErrorCode.rebalance_in_progress
    assert commit_in_transaction(shell, "a", 1) is ErrorCode.none


def test_a_commit_restarts_the_session(shell: Shell) -> None:
    shell.stable_group("a")
    for _ in range(5):
        shell.advance(SESSION_MS - 1)
        assert commit(shell, "a", 1) is ErrorCode.none


def test_clients_that_are_not_members_may_commit_while_the_group_is_empty(shell: Shell) -> None:
    shell.stable_group("a")
    assert commit(shell) is ErrorCode.unknown_member_id
    assert commit_in_transaction(shell) is ErrorCode.none, "a producer from before KIP-447"
    shell.leave("a")
    assert commit(shell) is ErrorCode.none
    assert commit(shell, "a", 1) is ErrorCode.unknown_member_id


def test_a_transactional_commit_with_a_member_is_checked(shell: Shell) -> None:
    shell.stable_group("a")
    assert commit_in_transaction(shell, "a", 1) is ErrorCode.none
    assert commit_in_transaction(shell, "a", 0) is ErrorCode.illegal_generation
    assert commit_in_transaction(shell, "b", 1) is ErrorCode.unknown_member_id


def test_a_group_is_subscribed_to_the_topics_of_its_members(shell: Shell) -> None:
    shell.stable_group("a", protocols=(("range", SUBSCRIBED_TO_ORDERS),))
    group = shell.group()
    assert group.is_subscribed_to("orders")
    assert not group.is_subscribed_to("payments")
    assert group.offset_expiry() == OffsetExpiry(None)
    group.check_offset_delete()


def test_if_a_subscription_is_malformed_every_topic_counts_as_subscribed(shell: Shell) -> None:
    shell.stable_group("a", protocols=(("range", b"\x00"),))
    assert shell.group().is_subscribed_to("anything")
    assert shell.group().offset_expiry() is None, "and nothing expires"


def test_a_group_of_another_type_keeps_all_its_offsets_while_it_has_members(shell: Shell) -> None:
    shell.stable_group("a", protocol_type="connect")
    group = shell.group()
    assert group.offset_expiry() is None
    assert not group.is_subscribed_to("orders")
    with pytest.raises(KafkaError) as rejection:
        group.check_offset_delete()
    assert rejection.value.code is ErrorCode.non_empty_group


def test_offsets_do_not_expire_during_a_rebalance(shell: Shell) -> None:
    shell.stable_group("a", protocols=(("range", SUBSCRIBED_TO_ORDERS),))
    shell.join(new_id="b")
    assert shell.group().offset_expiry() is None


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(shell: Shell) -> None:
    shell.stable_group("a", protocols=(("range", SUBSCRIBED_TO_ORDERS),))
    shell.advance(5000)
    shell.leave("a")
    became_empty_ms = shell.now_ms
    shell.advance(1_000_000)
    assert shell.group().offset_expiry() == OffsetExpiry(became_empty_ms)
    shell.restart()
    assert shell.group().offset_expiry() == OffsetExpiry(became_empty_ms)
    assert not shell.group().is_subscribed_to("orders")


def test_offsets_of_a_simple_group_expire_from_their_commit() -> None:
    group = ClassicGroup("simple")
    assert group.is_empty
    assert group.offset_expiry() == OffsetExpiry(None)
    assert not group.is_subscribed_to("orders")
    assert group.as_listed_group() == ListedGroup("simple", "", "Empty", "classic")


def test_only_an_empty_group_can_be_deleted(shell: Shell) -> None:
    shell.stable_group("a")
    with pytest.raises(KafkaError, match=r"NON_EMPTY_GROUP.*orders has 1 members"):
        shell.group().check_delete()
    shell.leave("a")
    shell.group().check_delete()
