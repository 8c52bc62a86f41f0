"""Static members: KIP-345, and KIP-814 for a leader that restarts."""

import pytest
from tests.unit.core.groups.classic.classic_groups import DELAY_MS, RANGE, SESSION_MS, SETTINGS, Shell

from ottla.core.groups.commands import LeavingMember, SyncGroupResponse
from ottla.model.errors import ErrorCode


@pytest.fixture
def shell() -> Shell:
    """A stable group of two static members: "one" is a-1 and leads, "two" is b-1."""
    shell = Shell()
    shell.join(new_id="a-1", group_instance_id="one")
    shell.join(new_id="b-1", group_instance_id="two")
    shell.advance(2 * DELAY_MS)
    shell.sync_all("a-1", "b-1")
    return shell


def test_a_static_member_gets_its_id_with_the_first_join() -> None:
    shell = Shell()
    waiter = shell.join(new_id="a-1", group_instance_id="one", require_known_member_id=True)
    shell.advance(DELAY_MS)
    response = shell.joined(waiter)
    assert response.member_id == "a-1"
    assert response.members[0].group_instance_id == "one"


def test_a_static_member_that_restarts_keeps_its_assignment_and_causes_no_rebalance(shell: Shell) -> None:
    response = shell.joined(shell.join(new_id="b-2", group_instance_id="two"))
    assert (response.error_code, response.member_id, response.generation_id) == (ErrorCode.none, "b-2", 1)
    assert (response.leader, response.members) == ("a-1", ())
    assert shell.replies[shell.sync("b-2", group_instance_id="two")] == SyncGroupResponse(
        b"b-1", "consumer", "range"
    )
    assert shell.state == "Stable"
    assert shell.heartbeat("a-1") is ErrorCode.none


def test_the_new_member_id_of_a_restarted_static_member_survives_a_reload(shell: Shell) -> None:
    shell.join(new_id="b-2", group_instance_id="two")
    shell.restart()
    assert shell.heartbeat("b-2", group_instance_id="two") is ErrorCode.none
    assert shell.heartbeat("b-1", group_instance_id="two") is ErrorCode.fenced_instance_id


def test_the_member_id_before_the_restart_is_fenced(shell: Shell) -> None:
    shell.join(new_id="b-2", group_instance_id="two")
    assert shell.heartbeat("b-1", group_instance_id="two") is ErrorCode.fenced_instance_id
    assert shell.error(shell.sync("b-1", group_instance_id="two")) is ErrorCode.fenced_instance_id
    assert shell.error(shell.join("b-1", group_instance_id="two")) is ErrorCode.fenced_instance_id
    left = shell.leave(LeavingMember("b-1", "two"))
    assert left[0].error_code is ErrorCode.fenced_instance_id
    assert shell.heartbeat("b-1") is ErrorCode.unknown_member_id, "it did not send its instance id"


def test_an_unknown_instance_gets_unknown_member_id(shell: Shell) -> None:
    assert shell.heartbeat("a-1", group_instance_id="three") is ErrorCode.unknown_member_id


def test_a_waiting_join_with_the_old_member_id_is_fenced_at_once(shell: Shell) -> None:
    shell.join(new_id="c-1", group_instance_id="three")
    waiting = shell.join("b-1", group_instance_id="two")
    restarted = shell.join(new_id="b-2", group_instance_id="two")
    response = shell.joined(waiting)
    assert (response.error_code, response.member_id) == (ErrorCode.fenced_instance_id, "b-1")
    shell.join("a-1", group_instance_id="one")
    assert shell.joined(restarted).generation_id == 2


def test_a_waiting_sync_with_the_old_member_id_is_fenced_at_once() -> None:
    shell = Shell()
    shell.join(new_id="a-1", group_instance_id="one")
    shell.join(new_id="b-1", group_instance_id="two")
    shell.advance(2 * DELAY_MS)
    waiting = shell.sync("b-1", group_instance_id="two")
    restarted = shell.join(new_id="b-2", group_instance_id="two")
    assert shell.error(waiting) is ErrorCode.fenced_instance_id
    assert restarted not in shell.replies, "the leader may have assigned to the old id: all rejoin"
    shell.join("a-1", group_instance_id="one")
    assert shell.joined(restarted).generation_id == 2


def test_a_leader_that_restarts_must_skip_the_assignment(shell: Shell) -> None:
    response = shell.joined(shell.join(new_id="a-2", group_instance_id="one", can_skip_assignment=True))
    assert (response.generation_id, response.leader, response.skip_assignment) == (1, "a-2", True)
    assert [member.member_id for member in response.members] == ["b-1", "a-2"]
    assert shell.state == "Stable"


def test_a_follower_that_restarts_has_no_assignment_to_skip(shell: Shell) -> None:
    response = shell.joined(shell.join(new_id="b-2", group_instance_id="two", can_skip_assignment=True))
    assert (response.leader, response.skip_assignment, response.members) == ("a-1", False, ())


def test_a_leader_that_cannot_skip_the_assignment_does_not_learn_that_it_leads(shell: Shell) -> None:
    response = shell.joined(shell.join(new_id="a-2", group_instance_id="one"))
    assert (response.leader, response.skip_assignment, response.members) == ("a-1", False, ())
    assert shell.group().leader_id == "a-2"


def test_a_static_member_whose_restart_changes_the_chosen_protocol_causes_a_rebalance(
    shell: Shell,
) -> None:
    both = (("range", b"metadata"), ("sticky", b"metadata"))
    first = shell.join("a-1", group_instance_id="one", protocols=both)
    second = shell.join("b-1", group_instance_id="two", protocols=both)
    assert shell.joined(first).protocol_name == shell.joined(second).protocol_name == "range"
    shell.sync_all("a-1", "b-1")
    sticky = (("sticky", b"metadata"),)
    assert shell.join(new_id="b-2", group_instance_id="two", protocols=sticky) not in shell.replies
    assert shell.state == "PreparingRebalance"


def test_a_static_member_with_its_member_id_is_treated_like_a_dynamic_one(shell: Shell) -> None:
    assert shell.joined(shell.join("b-1", group_instance_id="two")).generation_id == 1
    assert shell.join("b-1", group_instance_id="two", protocols=(("range", b"new"),)) not in shell.replies


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends(shell: Shell) -> None:
    waiter = shell.join("a-1", group_instance_id="one", rebalance_timeout_ms=5000)
    shell.group().members["b-1"].rebalance_timeout_ms = 5000
    shell.join(new_id="c", rebalance_timeout_ms=5000)
    for _ in range(20):
        if waiter in shell.replies:
            break
        shell.advance(4000)
        if "b-1" in shell.group().members:
            shell.heartbeat("b-1", 1)
    assert "b-1" in {member.member_id for member in shell.joined(waiter).members}
    assert shell.heartbeat("b-1", 1, group_instance_id="two") is ErrorCode.illegal_generation


def test_a_rebalance_that_no_static_member_joins_waits_until_their_sessions_end(shell: Shell) -> None:
    shell.join(new_id="c-1")
    shell.leave("c-1")
    assert shell.state == "PreparingRebalance"
    shell.advance(SESSION_MS)
    assert shell.state == "Empty"


def test_a_static_member_is_removed_when_its_session_ends(shell: Shell) -> None:
    for _ in range(4):
        shell.advance(SESSION_MS // 3)
        shell.heartbeat("a-1", 1)
    assert shell.group().static_members == {"one": "a-1"}


def test_an_administrator_can_remove_a_static_member_by_its_instance_id(shell: Shell) -> None:
    left = shell.leave(LeavingMember("", "two"), LeavingMember("", "nobody"), LeavingMember("", None))
    assert [(member.group_instance_id, member.error_code) for member in left] == [
        ("two", ErrorCode.none),
        ("nobody", ErrorCode.unknown_member_id),
        (None, ErrorCode.unknown_member_id),
    ]
    assert shell.group().static_members == {"one": "a-1"}


def test_a_member_that_is_removed_while_it_waits_gets_an_error(shell: Shell) -> None:
    shell.join(new_id="c-1", group_instance_id="three")
    waiting = shell.join("b-1", group_instance_id="two")
    shell.leave(LeavingMember("", "two"))
    assert shell.joined(waiting).error_code is ErrorCode.unknown_member_id


def test_a_static_member_may_restart_in_a_full_group() -> None:
    shell = Shell(type(SETTINGS)(initial_rebalance_delay_ms=DELAY_MS, max_size=1))
    shell.join(new_id="a-1", group_instance_id="one", protocols=RANGE)
    shell.advance(2 * DELAY_MS)
    shell.sync_all("a-1")
    assert shell.joined(shell.join(new_id="a-2", group_instance_id="one")).error_code is ErrorCode.none


def test_a_restart_before_the_first_sync_of_a_stable_group_causes_no_rebalance() -> None:
    shell = Shell()
    shell.join(new_id="a-1", group_instance_id="one")
    shell.join(new_id="b-1", group_instance_id="two")
    shell.advance(2 * DELAY_MS)
    shell.sync("a-1", assignments=(("b-1", b"for two"),))
    shell.join(new_id="b-2", group_instance_id="two")
    response = shell.replies[shell.sync("b-2", group_instance_id="two")]
    assert response.assignment == b"for two"
    for _ in range(30):
        shell.advance(4000)
        assert shell.heartbeat("a-1", 1) is shell.heartbeat("b-2", 1) is ErrorCode.none


def test_waiting_for_static_members_without_a_rebalance_timeout_is_no_busy_loop(shell: Shell) -> None:
    shell.join("a-1", group_instance_id="one", rebalance_timeout_ms=0)
    shell.join("b-1", group_instance_id="two", rebalance_timeout_ms=0)
    shell.sync_all("a-1", "b-1")
    assert shell.leave(LeavingMember("b-1", "two"))[0].error_code is ErrorCode.none
    assert shell.state == "PreparingRebalance"
    shell.advance(SESSION_MS)
    assert shell.state == "Empty"
