"""The records of a classic group, its state after a reload, and its description."""

from typing import Any

import pytest
from tests.unit.core.groups.classic.classic_groups import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Shell,
    machine,
)

from ottla.core.coordination import Decision
from ottla.core.groups.commands import Client, DescribedGroup, DescribedMember, DescribeGroup
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.group_records.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

KEY = GroupMetadataKey(group=GROUP)


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_a_new_group_is_written_before_its_first_member_gets_a_response(shell: Shell) -> None:
    shell.join(new_id="a", require_known_member_id=True)
    assert shell.records == [
        (
            KEY,
            GroupMetadataValue(
                protocol_type="",
                generation=0,
                protocol=None,
                leader=None,
                current_state_timestamp=shell.now_ms,
                members=(),
            ),
        )
    ]


def test_a_generation_is_written_with_its_assignment(shell: Shell) -> None:
    shell.join(new_id="a", group_instance_id="one")
    shell.advance(DELAY_MS)
    assert len(shell.records) == 1, "only the empty group so far"
    shell.sync("a", assignments=(("a", b"all"),))
    member = MemberMetadata(
        member_id="a",
        group_instance_id="one",
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout=REBALANCE_MS,
        session_timeout=SESSION_MS,
        subscription=b"metadata",
        assignment=b"all",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="a",
        current_state_timestamp=shell.now_ms,
        members=(member,),
    )
    assert shell.records[1:] == [(KEY, value)]


def test_a_group_that_becomes_empty_is_written(shell: Shell) -> None:
    shell.stable_group("a")
    written = len(shell.records)
    shell.leave("a")
    assert shell.records[written:] == [
        (
            KEY,
            GroupMetadataValue(
                protocol_type="consumer",
                generation=2,
                protocol=None,
                leader=None,
                current_state_timestamp=shell.now_ms,
                members=(),
            ),
        )
    ]


def test_heartbeats_and_rejected_requests_write_nothing(shell: Shell) -> None:
    shell.stable_group("a", "b")
    written = len(shell.records)
    shell.heartbeat("a")
    shell.join("b")
    shell.join("nobody")
    shell.leave("nobody")
    assert len(shell.records) == written


def test_a_reloaded_group_continues_in_its_generation(shell: Shell) -> None:
    shell.stable_group("a", "b")
    shell.restart()
    assert shell.state == "Stable"
    assert shell.heartbeat("a", 1) is ErrorCode.none
    assert shell.replies[shell.sync("b", 1)].assignment == b"b"


def test_the_sessions_of_all_members_restart_with_the_reload(shell: Shell) -> None:
    shell.stable_group("a", "b")
    shell.restart()
    for _ in range(4):
        shell.advance(SESSION_MS // 3)
        shell.heartbeat("b", 1)
    assert list(shell.group().members) == ["b"]


def test_a_rebalance_is_forgotten_after_a_reload(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b")
    shell.restart()
    assert shell.state == "Stable"
    assert list(shell.group().members) == ["a"]


def test_a_tombstone_removes_the_group(shell: Shell) -> None:
    shell.stable_group("a")
    shell.leave("a")
    decision: Decision[Any, Any] = Decision(shell.machine.replay)
    shell.group().write_tombstones(decision)
    assert decision.records == [(KEY, None)]
    assert shell.machine.durable_state() == {}
    shell.machine.replay(KEY, None)


def test_a_timer_of_a_deleted_group_is_harmless(shell: Shell) -> None:
    shell.join(new_id="a", require_known_member_id=True)
    waiting = shell.join(new_id="b")
    shell.machine.replay(KEY, None)
    shell.advance(10 * REBALANCE_MS)
    assert waiting not in shell.replies
    assert shell.timers == {}


def test_a_value_without_timestamp_is_read_with_an_unknown_time() -> None:
    fresh = machine()
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None, members=())
    fresh.replay(KEY, value)
    fresh.validate()
    assert fresh.durable_state() == {GROUP: value}


def test_a_member_without_rebalance_timeout_has_its_session_timeout(shell: Shell) -> None:
    shell.join(new_id="a", rebalance_timeout_ms=-1)
    assert shell.group().rebalance_timeout_ms == SESSION_MS


def test_a_stable_group_is_described_with_metadata_and_assignment(shell: Shell) -> None:
    shell.stable_group("a")
    member = DescribedMember("a", None, Client("client", "/127.0.0.1"), b"metadata", b"a")
    assert shell.ask(DescribeGroup(group_id=GROUP)) == DescribedGroup(
        GROUP, "Stable", "consumer", "range", (member,)
    )


def test_a_rebalancing_group_is_described_without_metadata(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b")
    described = shell.ask(DescribeGroup(group_id=GROUP))
    assert (described.state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [
        ("a", b"", b"a"),
        ("b", b"", b""),
    ]


def test_an_unknown_group_cannot_be_described(shell: Shell) -> None:
    with pytest.raises(KafkaError, match=r"GROUP_ID_NOT_FOUND.*no classic group nobody"):
        shell.ask(DescribeGroup(group_id="nobody"))
