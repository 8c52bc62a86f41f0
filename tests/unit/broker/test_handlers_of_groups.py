"""The requests of classic groups and of administrators of groups, in every version, over the wire."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.broker.broker_bench import HOST, PORT, Bench, on_broker
from tests.unit.broker.group_bench import message, rejected, versions, with_groups

from ottla.core.groups import commands
from ottla.core.groups.commands import Client
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey

SHARE_KEY = "g:AB3-cnWTTDCDVAyKeOFd0w:0"


def keys(*names: str) -> dict[str, Any]:
    return {"key": names[0], "coordinator_keys": names}


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_find_coordinator_returns_the_address_that_the_client_has_connected_to(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, 1)
        response = await bench.ask(message(ApiKey.FIND_COORDINATOR, version, **keys("g", "h")))
        found = response.coordinators if version >= 4 else [response]
        assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
            (ErrorCode.none, 1, HOST, PORT)
        ] * len(found)
        if version >= 4:
            assert [each.key for each in found] == ["g", "h"]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
@pytest.mark.parametrize("answer", [rejected(ErrorCode.coordinator_not_available), 7])
def test_find_coordinator_returns_an_error_if_there_is_none(version: int, answer: Any) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, answer)
        response = await bench.ask(message(ApiKey.FIND_COORDINATOR, version, **keys("g")))
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id, found.host, found.port) == (
            ErrorCode.coordinator_not_available, -1, "", -1,
        )  # fmt: skip
        if version >= 1:
            assert found.error_message

    run()


def test_duplicates_in_a_request_have_one_result_in_the_order_of_the_request() -> None:
    names = ("b", "a", "b", "c", "a")

    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(
            bench, lambda asked: 1 if isinstance(asked, str) else rejected(ErrorCode.group_id_not_found)
        )
        found = await bench.ask(message(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=names))
        assert [each.key for each in found.coordinators] == ["b", "a", "c"]
        described = await bench.ask(message(ApiKey.DESCRIBE_GROUPS, 5, groups=names))
        assert [each.group_id for each in described.groups] == ["b", "a", "c"]
        described = await bench.ask(message(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=names))
        assert [each.group_id for each in described.groups] == ["b", "a", "c"]
        with_groups(bench, ())
        group = {"topics": None}
        fetched = await bench.ask(
            message(ApiKey.OFFSET_FETCH, 8, groups=tuple(dict(group, group_id=name) for name in names))
        )
        assert [each.group_id for each in fetched.groups] == ["b", "a", "c"]
        described = await bench.ask(message(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names))
        assert [each.transactional_id for each in described.transaction_states] == ["b", "a", "c"]

    run()


@pytest.mark.parametrize(
    ("version", "key_type", "key", "expected"),
    [
        (6, 2, SHARE_KEY, ErrorCode.coordinator_not_available),
        (6, 2, "g:no-id:0", ErrorCode.invalid_request),
        (6, 2, "g", ErrorCode.invalid_request),
        (6, 2, SHARE_KEY[1:], ErrorCode.invalid_request),
        (5, 2, SHARE_KEY, ErrorCode.invalid_request),
        (3, 2, SHARE_KEY, ErrorCode.invalid_request),
        (4, 9, "g", ErrorCode.invalid_request),
    ],
)
def test_find_coordinator_of_other_types(version: int, key_type: int, key: str, expected: ErrorCode) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, 1)
        request = message(ApiKey.FIND_COORDINATOR, version, key_type=key_type, **keys(key))
        response = await bench.ask(request)
        found = response.coordinators[0] if version >= 4 else response
        assert (found.error_code, found.node_id) == (expected, -1)

    run()


def join_request(version: int, **values: Any) -> Any:
    defaults = {
        "group_id": "g",
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=60),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"r"}, {"name": "sticky", "metadata": b""}],
    }
    return message(ApiKey.JOIN_GROUP, version, **(defaults | values))


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_submits_the_member_and_returns_its_generation(version: int) -> None:
    joined = commands.JoinGroupResponse(
        ErrorCode.none,
        "client-1",
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="client-1",
        skip_assignment=True,
        members=(commands.JoinGroupMember("client-1", "i", b"r"),),
    )

    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, joined)
        response = await bench.ask(join_request(version, group_instance_id="i", reason="why not"))
        (command,) = fake.commands
        is_static = version >= 5
        assert (command.group_id, command.member_id) == ("g", "")
        assert command.new_member_id.startswith("i-" if is_static else "client-")
        assert len(command.new_member_id.partition("-")[2]) == 36
        assert command.client == Client("client", "/client")
        assert command.session_timeout_ms == 10_000
        assert command.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
        assert command.protocols == (("range", b"r"), ("sticky", b""))
        assert command.group_instance_id == ("i" if is_static else None)
        assert command.require_known_member_id is (version >= 4)
        assert command.can_skip_assignment is (version >= 9)
        assert command.reason == ("why not" if version >= 8 else None)

        assert (response.error_code, response.generation_id) == (ErrorCode.none, 3)
        assert (response.protocol_name, response.leader, response.member_id) == (
            "range", "client-1", "client-1",
        )  # fmt: skip
        (member,) = response.members
        assert (member.member_id, member.metadata) == ("client-1", b"r")
        if version >= 5:
            assert member.group_instance_id == "i"
        if version >= 7:
            assert response.protocol_type == "consumer"
        if version >= 9:
            assert response.skip_assignment is True

    run()


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
@pytest.mark.parametrize(
    "answer",
    [
        rejected(ErrorCode.unknown_member_id),
        commands.JoinGroupResponse(ErrorCode.unknown_member_id, "m"),
        commands.JoinGroupResponse(ErrorCode.unknown_member_id, "m", protocol_name=""),
    ],
)
def test_a_rejected_join_group_has_no_protocol_name(version: int, answer: Any) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, answer)
        response = await bench.ask(join_request(version, member_id="m"))
        assert (response.error_code, response.member_id) == (ErrorCode.unknown_member_id, "m")
        assert (response.generation_id, response.leader, response.members) == (-1, "", ())
        assert response.protocol_name == (None if version >= 7 else "")

    run()


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, ErrorCode.none),
        (rejected(ErrorCode.rebalance_in_progress), ErrorCode.rebalance_in_progress),
        (rejected(ErrorCode.coordinator_load_in_progress), ErrorCode.none),
    ],
)
def test_heartbeat_returns_the_error_code_of_the_group(
    version: int, answer: Any, expected: ErrorCode
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, answer)
        request = message(
            ApiKey.HEARTBEAT, version, group_id="g", generation_id=3, member_id="m", group_instance_id="i"
        )
        assert (await bench.ask(request)).error_code is expected
        instance_id = "i" if version >= 3 else None
        assert fake.commands == [
            commands.Heartbeat(group_id="g", generation_id=3, member_id="m", group_instance_id=instance_id)
        ]

    run()


def leave_request(version: int) -> Any:
    members = [{"member_id": "m", "reason": "done"}, {"member_id": "", "group_instance_id": "i"}]
    return message(ApiKey.LEAVE_GROUP, version, group_id="g", member_id="m", members=members)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group_has_one_member_and_in_later_versions_many(version: int) -> None:
    def left(command: commands.LeaveGroup) -> Any:
        codes = (ErrorCode.unknown_member_id, ErrorCode.none)
        return tuple(
            commands.MemberLeft(member.member_id, member.group_instance_id, code)
            for member, code in zip(command.members, codes, strict=False)
        )

    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, left)
        response = await bench.ask(leave_request(version))
        (command,) = fake.commands
        if version < 3:
            assert command.members == (commands.LeavingMember("m"),)
            assert response.error_code is ErrorCode.unknown_member_id
            return
        reason = "done" if version >= 5 else None
        assert command.members == (commands.LeavingMember("m", None, reason), commands.LeavingMember("", "i"))
        assert response.error_code is ErrorCode.none
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
            ("m", None, ErrorCode.unknown_member_id),
            ("", "i", ErrorCode.none),
        ]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group_of_an_unknown_group_has_an_error_for_every_member(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, rejected(ErrorCode.unknown_member_id))
        response = await bench.ask(leave_request(version))
        if version < 3:
            assert response.error_code is ErrorCode.unknown_member_id
        else:
            assert response.error_code is ErrorCode.none
            assert [each.error_code for each in response.members] == [ErrorCode.unknown_member_id] * 2

        with_groups(bench, rejected(ErrorCode.not_coordinator))
        response = await bench.ask(leave_request(version))
        assert response.error_code is ErrorCode.not_coordinator

    run()


def sync_request(version: int, **values: Any) -> Any:
    defaults = {
        "group_id": "g",
        "generation_id": 3,
        "member_id": "m",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"a"}],
    }
    return message(ApiKey.SYNC_GROUP, version, **(defaults | values))


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group_submits_assignments_and_returns_that_of_the_member(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, commands.SyncGroupResponse(b"a", "consumer", "range"))
        response = await bench.ask(sync_request(version))
        names_protocol = version >= 5
        assert fake.commands == [
            commands.SyncGroup(
                group_id="g",
                generation_id=3,
                member_id="m",
                group_instance_id="i" if version >= 3 else None,
                protocol_type="consumer" if names_protocol else None,
                protocol_name="range" if names_protocol else None,
                assignments=(("m", b"a"),),
            )
        ]
        assert (response.error_code, response.assignment) == (ErrorCode.none, b"a")
        if names_protocol:
            assert (response.protocol_type, response.protocol_name) == ("consumer", "range")

        with_groups(bench, rejected(ErrorCode.illegal_generation))
        response = await bench.ask(sync_request(version))
        assert (response.error_code, response.assignment) == (ErrorCode.illegal_generation, b"")

    run()


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_group_must_name_its_protocol_from_version_5_on(missing: str) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, commands.SyncGroupResponse(b"a"))
        response = await bench.ask(sync_request(5, **{missing: None}))
        assert response.error_code is ErrorCode.inconsistent_group_protocol
        assert fake.commands == []

    run()


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
@pytest.mark.parametrize("include_operations", [True, False])
def test_describe_groups_returns_members_and_errors_for_unknown_groups(
    version: int, include_operations: bool
) -> None:
    member = commands.DescribedMember("m", "i", Client("c", "/h"), b"meta", b"assigned")
    described = commands.DescribedGroup("g", "Stable", "consumer", "range", (member,))

    def describe(command: commands.DescribeGroup) -> Any:
        return {"g": described, "gone": rejected(ErrorCode.group_id_not_found)}.get(
            command.group_id, rejected(ErrorCode.not_coordinator)
        )

    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, describe)
        request = message(
            ApiKey.DESCRIBE_GROUPS,
            version,
            groups=("gone", "g", "other"),
            include_authorized_operations=include_operations,
        )
        gone, group, other = (await bench.ask(request)).groups
        assert (group.error_code, group.group_id, group.group_state) == (ErrorCode.none, "g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (shown,) = group.members
        assert (shown.member_id, shown.client_id, shown.client_host) == ("m", "c", "/h")
        assert (shown.member_metadata, shown.member_assignment) == (b"meta", b"assigned")
        assert (gone.group_id, gone.group_state, gone.members) == ("gone", "Dead", ())
        assert gone.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
        assert (other.group_id, other.error_code) == ("other", ErrorCode.not_coordinator)
        if version >= 3:
            operations = 3400 if include_operations else -(2**31)  # as Apache Kafka returns for a group
            assert group.authorized_operations == operations
        if version >= 4:
            assert shown.group_instance_id == "i"
        if version >= 6:
            assert (group.error_message, gone.error_message) == (None, "rejected by the test")

    run()


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups_filters_by_state_and_type_ignoring_case(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, (commands.ListedGroup("g", "consumer", "Stable", "classic"),))
        request = message(
            ApiKey.LIST_GROUPS, version, states_filter=("Stable", "EMPTY"), types_filter=("Classic",)
        )
        response = await bench.ask(request)
        assert fake.commands == [
            commands.ListGroups(
                states=frozenset({"stable", "empty"} if version >= 4 else ()),
                types=frozenset({"classic"} if version >= 5 else ()),
            )
        ]
        assert response.error_code is ErrorCode.none
        (group,) = response.groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        if version >= 4:
            assert group.group_state == "Stable"
        if version >= 5:
            assert group.group_type == "classic"

        with_groups(bench, rejected(ErrorCode.coordinator_load_in_progress))
        response = await bench.ask(message(ApiKey.LIST_GROUPS, version))
        assert (response.error_code, response.groups) == (ErrorCode.coordinator_load_in_progress, ())

    run()


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups_deletes_each_once(version: int) -> None:
    def delete(command: commands.DeleteGroup) -> Any:
        return rejected(ErrorCode.non_empty_group) if command.group_id == "busy" else None

    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, delete)
        response = await bench.ask(message(ApiKey.DELETE_GROUPS, version, groups_names=("a", "busy", "a")))
        assert fake.commands == [commands.DeleteGroup(group_id="a"), commands.DeleteGroup(group_id="busy")]
        assert [(each.group_id, each.error_code) for each in response.results] == [
            ("a", ErrorCode.none),
            ("busy", ErrorCode.non_empty_group),
        ]

    run()
