"""The life of a classic group: how it is created, and how members join, rejoin and leave."""

from typing import Any

import pytest
from tests.unit.core.groups.classic.classic_groups import (
    DELAY_MS,
    GROUP,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    Shell,
)

from ottla.core.groups.classic.timers import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.core.groups.commands import JoinGroupMember, SyncGroupResponse
from ottla.model.errors import ErrorCode


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_the_first_member_of_a_group_is_its_leader_and_gets_all_members(shell: Shell) -> None:
    first, second = shell.join(new_id="a"), shell.join(new_id="b")
    assert first not in shell.replies
    shell.advance(2 * DELAY_MS)
    leader, follower = shell.joined(first), shell.joined(second)
    assert leader.leader == follower.leader == "a"
    assert leader.generation_id == follower.generation_id == 1
    assert leader.protocol_name == "range"
    assert leader.protocol_type == "consumer"
    assert leader.members == (
        JoinGroupMember("a", None, b"metadata"),
        JoinGroupMember("b", None, b"metadata"),
    )
    assert follower.members == ()
    assert shell.state == "CompletingRebalance"


def test_the_leaders_assignment_reaches_waiting_and_later_members(
    shell: Shell,
) -> None:
    shell.join(new_id="a"), shell.join(new_id="b"), shell.join(new_id="c")
    shell.advance(2 * DELAY_MS)
    early = shell.sync("b")
    assert early not in shell.replies
    leader = shell.sync("a", assignments=(("a", b"0"), ("b", b"1")))
    late = shell.sync("c")
    assert shell.replies[leader] == SyncGroupResponse(b"0", "consumer", "range")
    assert shell.replies[early] == SyncGroupResponse(b"1", "consumer", "range")
    assert shell.replies[late] == SyncGroupResponse(b"", "consumer", "range"), "the leader forgot it"
    assert shell.state == "Stable"


def test_a_new_group_waits_while_new_members_join(shell: Shell) -> None:
    waiters = [shell.join(new_id="a")]
    for member_id in "bcde":
        shell.advance(DELAY_MS - 1)
        waiters.append(shell.join(new_id=member_id))
        assert waiters[0] not in shell.replies
    shell.advance(2 * DELAY_MS)
    assert [shell.joined(waiter).generation_id for waiter in waiters] == [1] * 5


def test_the_initial_delay_is_not_extended_beyond_the_rebalance_timeout(shell: Shell) -> None:
    first = shell.join(new_id="a", rebalance_timeout_ms=7000)
    for number in range(20):
        shell.advance(1000)
        if first in shell.replies:
            break
        shell.join(new_id=f"m{number}", rebalance_timeout_ms=7000)
    assert shell.joined(first).generation_id == 1
    assert shell.now_ms - 1_000_000 <= 7000 + DELAY_MS


def test_without_an_initial_delay_the_first_generation_begins_at_once() -> None:
    shell = Shell(type(SETTINGS)(initial_rebalance_delay_ms=0))
    waiter = shell.join(new_id="a")
    shell.advance(0)
    assert shell.joined(waiter).generation_id == 1


def test_a_member_that_joins_makes_the_others_rejoin(shell: Shell) -> None:
    shell.stable_group("a", "b")
    new = shell.join(new_id="c")
    assert shell.state == "PreparingRebalance"
    assert shell.heartbeat("a") is ErrorCode.rebalance_in_progress
    first = shell.join("a")
    assert new not in shell.replies
    second = shell.join("b")
    assert [shell.joined(waiter).generation_id for waiter in (new, first, second)] == [2, 2, 2]
    assert shell.joined(first).leader == "a", "a leader that rejoins stays the leader"


def test_a_member_that_leaves_makes_the_others_rejoin(shell: Shell) -> None:
    shell.stable_group("a", "b")
    assert shell.leave("a")[0].error_code is ErrorCode.none
    assert shell.heartbeat("b") is ErrorCode.rebalance_in_progress
    rejoined = shell.joined(shell.join("b"))
    assert (rejoined.generation_id, rejoined.leader) == (2, "b")


def test_a_member_without_heartbeats_is_removed_after_the_session_timeout(shell: Shell) -> None:
    shell.stable_group("a", "b")
    for _ in range(4):
        shell.advance(SESSION_MS // 3)
        shell.heartbeat("b", 1)
    assert list(shell.group().members) == ["b"]
    assert shell.state == "PreparingRebalance"
    assert shell.heartbeat("a", 1) is ErrorCode.unknown_member_id


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_removed(shell: Shell) -> None:
    shell.stable_group("a", "b")
    rejoined = shell.join("b", protocols=(("range", b"changed"),))
    for _ in range(REBALANCE_MS // 5000):
        assert rejoined not in shell.replies
        assert shell.heartbeat("a", 1) is ErrorCode.rebalance_in_progress
        shell.advance(5000)
    response = shell.joined(rejoined)
    assert (response.leader, [m.member_id for m in response.members]) == ("b", ["b"])


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed(shell: Shell) -> None:
    shell.join(new_id="a"), shell.join(new_id="b")
    shell.advance(2 * DELAY_MS)
    waiting = shell.sync("b")
    for _ in range(REBALANCE_MS // 5000):
        shell.heartbeat("a", 1)
        shell.advance(5000)
    assert list(shell.group().members) == ["b"]
    assert shell.error(waiting) is ErrorCode.rebalance_in_progress
    assert shell.state == "PreparingRebalance"


def test_a_member_that_waits_for_a_response_need_not_send_heartbeats(shell: Shell) -> None:
    shell.stable_group("a", "b")
    waiting = shell.join("b", protocols=(("range", b"changed"),))
    for _ in range(4):
        shell.advance(SESSION_MS // 2)
        shell.heartbeat("a", 1)
    assert waiting not in shell.replies
    assert list(shell.group().members) == ["a", "b"]


def test_a_new_member_without_a_response_is_removed_after_five_minutes(shell: Shell) -> None:
    shell.stable_group("a", rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    waiting = shell.join(new_id="b")
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5000):
        assert waiting not in shell.replies
        assert shell.heartbeat("a", 1) is ErrorCode.rebalance_in_progress
        shell.advance(5000)
    response = shell.joined(waiting)
    assert (response.error_code, response.member_id) == (ErrorCode.unknown_member_id, "")


def test_a_follower_that_rejoins_a_stable_group_unchanged_gets_the_current_generation(shell: Shell) -> None:
    shell.stable_group("a", "b")
    response = shell.joined(shell.join("b"))
    assert (response.generation_id, response.leader, response.members) == (1, "a", ())
    assert shell.state == "Stable"


def test_a_leader_that_rejoins_a_stable_group_makes_it_rebalance(shell: Shell) -> None:
    shell.stable_group("a", "b")
    waiter = shell.join("a")
    assert waiter not in shell.replies
    assert shell.state == "PreparingRebalance"


def test_a_member_with_another_subscription_makes_the_group_rebalance(shell: Shell) -> None:
    shell.stable_group("a", "b")
    assert shell.join("b", protocols=(("range", b"other topics"),)) not in shell.replies
    assert shell.state == "PreparingRebalance"


def test_a_join_that_is_sent_again_before_the_sync_gets_the_same_response(shell: Shell) -> None:
    first = shell.join(new_id="a")
    shell.advance(2 * DELAY_MS)
    assert shell.joined(shell.join("a")) == shell.joined(first)


def test_a_join_that_is_sent_again_replaces_the_waiting_one(shell: Shell) -> None:
    shell.stable_group("a", "b")
    first = shell.join("a")
    again = shell.join("a")
    assert shell.error(first) is ErrorCode.rebalance_in_progress
    shell.join("b")
    assert shell.joined(again).generation_id == 2


def test_members_that_wait_for_the_assignment_must_rejoin_when_a_rebalance_begins(shell: Shell) -> None:
    shell.join(new_id="a"), shell.join(new_id="b")
    shell.advance(2 * DELAY_MS)
    waiting = shell.sync("b")
    shell.join(new_id="c")
    assert shell.error(waiting) is ErrorCode.rebalance_in_progress


def test_a_leader_that_does_not_rejoin_is_replaced_by_a_member_that_has(shell: Shell) -> None:
    shell.stable_group("a", "b", "c")
    new = shell.join(new_id="d")
    follower = shell.join("c")
    for _ in range(REBALANCE_MS // 5000):
        shell.heartbeat("a", 1), shell.heartbeat("b", 1)
        shell.advance(5000)
    assert shell.joined(new).leader == shell.joined(follower).leader == "c"
    assert shell.joined(follower).members


def test_a_group_whose_last_member_leaves_is_empty_and_can_be_joined_again(shell: Shell) -> None:
    shell.stable_group("a")
    shell.leave("a")
    assert shell.state == "Empty"
    waiter = shell.join(new_id="b", protocol_type="connect", protocols=(("sticky", b""),))
    shell.advance(DELAY_MS)
    response = shell.joined(waiter)
    assert (response.protocol_type, response.protocol_name) == ("connect", "sticky")
    assert response.generation_id == 3, "an empty group also starts a generation"


# -- protocols


def test_the_protocol_is_chosen_by_the_votes_of_the_members_among_those_that_all_support(
    shell: Shell,
) -> None:
    range_first = (("range", b"r"), ("roundrobin", b"o"))
    roundrobin_first = (("own", b""), ("roundrobin", b"o"), ("range", b"r"))
    waiters = [shell.join(protocols=range_first)]
    waiters += [shell.join(protocols=roundrobin_first) for _ in range(2)]
    shell.advance(2 * DELAY_MS)
    assert {shell.joined(waiter).protocol_name for waiter in waiters} == {"roundrobin"}
    assert {m.metadata for m in shell.joined(waiters[0]).members} == {b"o"}


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocols": (("roundrobin", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_a_common_protocol_is_rejected(shell: Shell, fields: dict[str, Any]) -> None:
    shell.stable_group("a")
    before = shell.machine.durable_state()
    assert shell.error(shell.join(**fields)) is ErrorCode.inconsistent_group_protocol
    assert shell.error(shell.join("a", **fields)) is ErrorCode.inconsistent_group_protocol
    assert shell.machine.durable_state() == before
    assert shell.state == "Stable"


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_member_without_protocol_does_not_create_a_group(shell: Shell, fields: dict[str, Any]) -> None:
    assert shell.error(shell.join(**fields)) is ErrorCode.inconsistent_group_protocol
    assert shell.machine.durable_state() == {}
    assert shell.records == []


def test_of_a_duplicate_protocol_the_first_counts(shell: Shell) -> None:
    waiter = shell.join(protocols=(("range", b"first"), ("range", b"second")))
    shell.advance(DELAY_MS)
    assert shell.joined(waiter).members[0].metadata == b"first"


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}])
def test_a_member_that_syncs_with_another_protocol_is_rejected(shell: Shell, wrong: dict[str, Any]) -> None:
    shell.join(new_id="a")
    shell.advance(DELAY_MS)
    assert shell.error(shell.sync("a", **wrong)) is ErrorCode.inconsistent_group_protocol
    right = shell.sync("a", protocol_type="consumer", protocol_name="range")
    assert isinstance(shell.replies[right], SyncGroupResponse)


# -- bad input


@pytest.mark.parametrize("timeout_ms", [SETTINGS.min_session_timeout_ms - 1, -1, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_rejected(shell: Shell, timeout_ms: int) -> None:
    assert shell.error(shell.join(session_timeout_ms=timeout_ms)) is ErrorCode.invalid_session_timeout


def test_an_empty_group_id_is_rejected(shell: Shell) -> None:
    assert shell.error(shell.join(group_id="")) is ErrorCode.invalid_group_id


def test_a_member_id_that_the_coordinator_did_not_generate_is_unknown(shell: Shell) -> None:
    assert shell.error(shell.join("mine")) is ErrorCode.unknown_member_id
    shell.stable_group("a")
    assert shell.error(shell.join("mine")) is ErrorCode.unknown_member_id
    assert shell.error(shell.sync("mine")) is ErrorCode.unknown_member_id
    assert shell.heartbeat("mine") is ErrorCode.unknown_member_id
    assert shell.leave("mine")[0].error_code is ErrorCode.unknown_member_id


def test_a_member_with_another_generation_gets_illegal_generation(shell: Shell) -> None:
    shell.stable_group("a")
    assert shell.heartbeat("a", 0) is ErrorCode.illegal_generation
    assert shell.heartbeat("a", 2) is ErrorCode.illegal_generation
    assert shell.error(shell.sync("a", 0)) is ErrorCode.illegal_generation


def test_a_sync_while_the_group_waits_for_members_gets_rebalance_in_progress(shell: Shell) -> None:
    shell.stable_group("a", "b")
    shell.join(new_id="c")
    assert shell.error(shell.sync("a", 1)) is ErrorCode.rebalance_in_progress


def test_leaving_an_unknown_group_returns_an_error_for_each_member(shell: Shell) -> None:
    assert [left.error_code for left in shell.leave("a", "b")] == [ErrorCode.unknown_member_id] * 2


def test_members_that_leave_together_cause_one_rebalance_and_each_gets_a_result(shell: Shell) -> None:
    shell.stable_group("a", "b", "c")
    left = shell.leave("a", "nobody", "b")
    assert [member.error_code for member in left] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
    ]
    assert shell.joined(shell.join("c")).generation_id == 2


# -- KIP-394


def test_a_dynamic_member_must_join_again_with_its_new_id(shell: Shell) -> None:
    required = shell.joined(shell.join(new_id="a", require_known_member_id=True))
    assert (required.error_code, required.member_id) == (ErrorCode.member_id_required, "a")
    assert shell.group().members == {}
    assert shell.state == "Empty"
    waiter = shell.join("a", require_known_member_id=True)
    shell.advance(DELAY_MS)
    assert shell.joined(waiter).leader == "a"


def test_a_member_that_never_joins_with_its_new_id_leaves_no_state(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b", require_known_member_id=True)
    assert shell.state == "Stable", "a pending member has not joined"
    shell.advance(SESSION_MS - 1)
    shell.heartbeat("a")
    shell.advance(1)
    assert shell.group().pending_members == {}
    assert shell.error(shell.join("b")) is ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_pending_members(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b", require_known_member_id=True)
    waiter = shell.join("a")
    assert waiter not in shell.replies
    joined = shell.join("b")
    assert shell.joined(waiter).generation_id == shell.joined(joined).generation_id == 2


def test_a_pending_member_that_leaves_does_not_block_the_rebalance(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b", require_known_member_id=True)
    waiter = shell.join("a")
    assert shell.leave("b")[0].error_code is ErrorCode.none
    assert shell.joined(waiter).generation_id == 2


def test_a_pending_member_whose_session_expires_does_not_block_the_rebalance(shell: Shell) -> None:
    shell.stable_group("a")
    shell.join(new_id="b", require_known_member_id=True)
    waiter = shell.join("a")
    shell.advance(SESSION_MS)
    assert shell.joined(waiter).generation_id == 2


# -- group.max.size


def test_a_full_classic_group_rejects_new_members_and_keeps_its_own() -> None:
    shell = Shell(type(SETTINGS)(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    shell.stable_group("a", "b")
    rejected = shell.joined(shell.join(new_id="c"))
    assert (rejected.error_code, rejected.member_id) == (ErrorCode.group_max_size_reached, "")
    assert shell.state == "Stable"
    rejoined = shell.join("a")
    assert shell.joined(shell.join(new_id="c", require_known_member_id=True)).error_code is (
        ErrorCode.member_id_required
    )
    shell.join("b")
    assert shell.joined(shell.join("c")).error_code is ErrorCode.group_max_size_reached
    assert shell.joined(rejoined).generation_id == 2


def test_if_the_limit_was_lowered_the_last_member_to_rejoin_is_rejected() -> None:
    shell = Shell()
    shell.stable_group("a", "b", "c")
    shell.restart(type(SETTINGS)(initial_rebalance_delay_ms=DELAY_MS, max_size=2))
    assert shell.state == "PreparingRebalance"
    first, second = shell.join("a"), shell.join("b")
    assert shell.joined(shell.join("c")).error_code is ErrorCode.group_max_size_reached
    assert [shell.joined(w).generation_id for w in (first, second)] == [2, 2]


def test_groups_do_not_affect_each_other(shell: Shell) -> None:
    shell.stable_group("a")
    other = shell.join(new_id="x", group_id="payments", protocols=RANGE)
    assert other not in shell.replies
    assert shell.heartbeat("a") is ErrorCode.none
    assert set(shell.machine.durable_state()) == {GROUP, "payments"}
