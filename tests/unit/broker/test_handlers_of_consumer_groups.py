"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in both versions, over the wire."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message, rejected, versions, with_groups

from ottla.core.groups import commands
from ottla.core.groups.commands import Client, ConsumerAssignment, TopicIdPartitions
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey

TOPIC_ID = UUID("001dfe72-7593-4c30-8354-0c8a78e15dd3")


def heartbeat(version: int, **values: Any) -> Any:
    return message(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **({"group_id": "g", "member_id": "m"} | values))


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_heartbeat_submits_the_members_state_and_returns_its_assignment(version: int) -> None:
    expected = commands.ConsumerGroupHeartbeatResponse("m", 5, 3000, (TopicIdPartitions(TOPIC_ID, (0, 2)),))

    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, expected)
        response = await bench.ask(
            heartbeat(
                version,
                member_epoch=4,
                instance_id="i",
                rack_id="r",
                rebalance_timeout=timedelta(seconds=60),
                subscribed_topic_names=("orders",),
                subscribed_topic_regex="o.*",
                server_assignor="uniform",
                topic_partitions=[{"topic_id": TOPIC_ID, "partitions": (1,)}],
            )
        )
        assert fake.commands == [
            commands.ConsumerGroupHeartbeat(
                group_id="g",
                member_id="m",
                member_epoch=4,
                client=Client("client", "/client"),
                instance_id="i",
                rack_id="r",
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=("orders",),
                subscribed_topic_regex="o.*" if version >= 1 else None,
                server_assignor="uniform",
                topic_partitions=(TopicIdPartitions(TOPIC_ID, (1,)),),
            )
        ]
        assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.none, "m", 5)
        assert response.heartbeat_interval == timedelta(seconds=3)
        (assigned,) = response.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (TOPIC_ID, (0, 2))

    run()


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_heartbeat_without_changes_has_no_optional_fields(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, commands.ConsumerGroupHeartbeatResponse("m", 5, 3000))
        response = await bench.ask(heartbeat(version, member_epoch=5, topic_partitions=None))
        assert fake.commands == [
            commands.ConsumerGroupHeartbeat(
                group_id="g", member_id="m", member_epoch=5, client=Client("client", "/client")
            )
        ]
        assert response.assignment is None

    run()


@pytest.mark.parametrize(
    ("version", "member_epoch", "is_made_up"), [(0, 0, True), (0, 1, False), (0, -1, False), (1, 0, False)]
)
def test_the_broker_generates_the_member_id_of_an_old_client(
    version: int, member_epoch: int, is_made_up: bool
) -> None:
    """KIP-1082: from version 1 on the member generates its id."""

    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, rejected(ErrorCode.invalid_request))
        await bench.ask(heartbeat(version, member_id="", member_epoch=member_epoch))
        (command,) = fake.commands
        assert len(command.member_id) == (22 if is_made_up else 0)

    run()


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_HEARTBEAT))
def test_a_rejected_heartbeat_has_an_error_message(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, rejected(ErrorCode.fenced_member_epoch))
        response = await bench.ask(heartbeat(version, member_epoch=5))
        assert (response.error_code, response.error_message) == (
            ErrorCode.fenced_member_epoch, "rejected by the test",
        )  # fmt: skip
        assert (response.member_id, response.member_epoch, response.assignment) == (None, 0, None)

    run()


def describe_request(version: int, *group_ids: str, **values: Any) -> Any:
    return message(ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=group_ids, **values)


@pytest.mark.parametrize("version", versions(ApiKey.CONSUMER_GROUP_DESCRIBE))
@pytest.mark.parametrize("include_operations", [True, False])
def test_describe_returns_members_with_current_and_target_assignment(
    version: int, include_operations: bool
) -> None:
    member = commands.DescribedConsumer(
        "m",
        "i",
        "r",
        5,
        Client("c", "/h"),
        ("orders",),
        "o.*",
        (ConsumerAssignment(TOPIC_ID, "orders", (0,)),),
        (ConsumerAssignment(TOPIC_ID, "orders", (0, 1)),),
        1,
    )
    described = commands.DescribedConsumerGroup("g", "Reconciling", 6, 5, "uniform", (member,))

    def describe(command: commands.DescribeConsumerGroup) -> Any:
        return described if command.group_id == "g" else rejected(ErrorCode.group_id_not_found)

    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, describe)
        request = describe_request(version, "gone", "g", "", include_authorized_operations=include_operations)
        gone, group, nameless = (await bench.ask(request)).groups
        assert (gone.group_id, gone.error_code, gone.error_message) == (
            "gone", ErrorCode.group_id_not_found, "rejected by the test",
        )  # fmt: skip
        assert nameless.error_code is ErrorCode.invalid_group_id
        assert (group.error_code, group.group_state) == (ErrorCode.none, "Reconciling")
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (6, 5, "uniform")
        assert group.authorized_operations == (3400 if include_operations else -(2**31))
        (shown,) = group.members
        assert (shown.member_id, shown.instance_id, shown.rack_id, shown.member_epoch) == ("m", "i", "r", 5)
        assert (shown.client_id, shown.client_host) == ("c", "/h")
        assert (shown.subscribed_topic_names, shown.subscribed_topic_regex) == (("orders",), "o.*")
        assignments = (shown.assignment, shown.target_assignment)
        assert [
            [(each.topic_id, each.topic_name, each.partitions) for each in assignment.topic_partitions]
            for assignment in assignments
        ] == [[(TOPIC_ID, "orders", (0,))], [(TOPIC_ID, "orders", (0, 1))]]
        if version >= 1:
            assert shown.member_type == 1

    run()


@pytest.mark.parametrize("version", [0, 1])
def test_with_the_protocol_disabled_both_requests_are_unsupported(version: int) -> None:
    @on_broker(group_coordinator_rebalance_protocols="classic")
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, None)
        assert (await bench.ask(heartbeat(version))).error_code is ErrorCode.unsupported_version
        (group,) = (await bench.ask(describe_request(version, "g"))).groups
        assert group.error_code is ErrorCode.unsupported_version
        assert fake.commands == []

    run()
