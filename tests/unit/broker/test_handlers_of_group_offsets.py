"""OffsetCommit, OffsetFetch and OffsetDelete in every version, over the wire."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.types import TopicName
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message, rejected, versions, with_groups

from ottla.broker.handlers import k08_offset_commit
from ottla.core.groups import commands
from ottla.core.groups.commands import CommittedOffset, OffsetToCommit, PartitionError
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import ApiKey
from ottla.sim.loop_watch import _OUTSIDE

UNKNOWN_ID = UUID(int=77)


def partition(index: int, offset: int = 5, **values: Any) -> dict[str, Any]:
    defaults = {"committed_leader_epoch": 2, "committed_metadata": "note"}
    return {"partition_index": index, "committed_offset": offset, **defaults, **values}


def commit_request(
    version: int, *topics: tuple[str, UUID | None, list[dict[str, Any]]], **values: Any
) -> Any:
    defaults = {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "group_instance_id": "i",
        "topics": [
            {"name": name, "topic_id": topic_id, "partitions": parts} for name, topic_id, parts in topics
        ],
    }
    return message(ApiKey.OFFSET_COMMIT, version, **(defaults | values))


def answers(response: Any) -> list[tuple[Any, int, ErrorCode]]:
    return [
        (getattr(topic, "name", None) or topic.topic_id, part.partition_index, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]


def commit(command: commands.OffsetCommit) -> tuple[PartitionError, ...]:
    return tuple(PartitionError(each.topic, each.partition, ErrorCode.none) for each in command.offsets)


@pytest.mark.parametrize(("partitions", "is_long"), [(20, False), (3000, True)])
def test_a_thread_checks_the_topics_of_a_very_long_offset_commit(
    partitions: int, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_thread: list[bool] = []
    original = k08_offset_commit._check_topics

    def check(*arguments: Any) -> Any:
        in_thread.append(_OUTSIDE.get())
        return original(*arguments)

    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("orders")
        fake = with_groups(bench, commit)
        monkeypatch.setattr(k08_offset_commit, "_check_topics", check)
        sent = [("orders", None, [partition(0)])]
        sent += [(f"gone-{number}", None, [partition(0)]) for number in range(partitions)]
        codes = [code for _, _, code in answers(await bench.ask(commit_request(9, *sent)))]
        assert codes == [ErrorCode.none] + partitions * [ErrorCode.unknown_topic_or_partition]
        assert in_thread == [is_long]
        assert len(fake.commands) == 1

    run()


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit_submits_only_existing_partitions_to_the_group(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders", partitions=2)
        fake = with_groups(bench, commit)
        request = commit_request(
            version,
            ("orders", topic_id, [partition(9), partition(1, committed_metadata=None), partition(0)]),
            ("gone", UNKNOWN_ID, [partition(0)]),
        )
        by_id = version >= 10
        orders, gone = (topic_id, UNKNOWN_ID) if by_id else ("orders", "gone")
        assert answers(await bench.ask(request)) == [
            (orders, 9, ErrorCode.unknown_topic_or_partition),
            (orders, 1, ErrorCode.none),
            (orders, 0, ErrorCode.none),
            (gone, 0, ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition),
        ]
        epoch = 2 if version >= 6 else -1
        assert fake.commands == [
            commands.OffsetCommit(
                group_id="g",
                member_id="m",
                group_instance_id="i" if version >= 7 else None,
                generation_or_member_epoch=3,
                offsets=(
                    OffsetToCommit("orders", 1, 5, epoch, None, topic_id),
                    OffsetToCommit("orders", 0, 5, epoch, "note", topic_id),
                ),
                supports_stale_member_epoch=version >= 9,
            )
        ]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_an_offset_commit_that_the_group_rejects_still_has_the_errors_of_unknown_partitions(
    version: int,
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders")
        with_groups(bench, rejected(ErrorCode.illegal_generation))
        response = await bench.ask(
            commit_request(version, ("orders", topic_id, [partition(0), partition(1), partition(0)]))
        )
        assert [code for _, _, code in answers(response)] == [
            ErrorCode.illegal_generation,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.illegal_generation,
        ]

    run()


def test_an_offset_commit_without_existing_partitions_is_not_submitted() -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        fake = with_groups(bench, rejected(ErrorCode.illegal_generation))
        response = await bench.ask(commit_request(9, ("gone", None, [partition(0)])))
        assert answers(response) == [("gone", 0, ErrorCode.unknown_topic_or_partition)]
        assert (await bench.ask(commit_request(9))).topics == ()
        response = await bench.ask(commit_request(10, ("", None, [partition(0)])))
        assert answers(response) == [(None, 0, ErrorCode.unknown_topic_id)]
        assert fake.commands == []

    run()


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("retention", "expected"), [(-1, None), (0, 0), (60_000, 60_000)])
def test_offset_commit_of_old_clients_may_have_a_retention(
    version: int, retention: int, expected: int | None
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("orders")
        fake = with_groups(bench, commit)
        await bench.ask(
            commit_request(
                version,
                ("orders", None, [partition(0)]),
                retention_time=timedelta(milliseconds=retention),
            )
        )
        (command,) = fake.commands
        assert command.retention_ms == expected

    run()


def fetch_request(version: int, *groups: tuple[str, Any], **values: Any) -> Any:
    """A group is its id and its topics: (name, id, partitions) of each, or None for all."""

    def topics_of(topics: Any) -> Any:
        if topics is None:
            return None
        return [
            {"name": name, "topic_id": topic_id, "partition_indexes": indexes}
            for name, topic_id, indexes in topics
        ]

    shaped = [
        {"group_id": group_id, "member_id": "m", "member_epoch": 4, "topics": topics_of(topics)}
        for group_id, topics in groups
    ]
    single = {"group_id": shaped[0]["group_id"], "topics": shaped[0]["topics"]}
    return message(ApiKey.OFFSET_FETCH, version, groups=shaped, **single, **values)


def groups_of(response: Any, version: int) -> Any:
    return response.groups if version >= 8 else [response]


def fetched(group: Any) -> list[tuple[Any, ...]]:
    return [
        (
            getattr(topic, "name", None) or topic.topic_id,
            part.partition_index,
            part.committed_offset,
            part.metadata,
            part.error_code,
        )
        for topic in group.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch_of_some_partitions(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders", partitions=2)

        def fetch(command: commands.OffsetFetch) -> Any:
            assert command.partitions is not None
            found = {("orders", 1): CommittedOffset("orders", 1, 5, 2, "note", topic_id)}
            return tuple(found.get(each, CommittedOffset(*each)) for each in command.partitions)

        fake = with_groups(bench, fetch)
        request = fetch_request(
            version,
            ("g", [("orders", topic_id, (1, 0)), ("gone", UNKNOWN_ID, (0,))]),
            ("h", [("orders", topic_id, (0,))]),
            require_stable=True,
        )
        answered = groups_of(await bench.ask(request), version)
        by_id = version >= 10
        orders, gone = (topic_id, UNKNOWN_ID) if by_id else ("orders", "gone")
        assert fetched(answered[0]) == [
            (orders, 1, 5, "note", ErrorCode.none),
            (orders, 0, -1, "", ErrorCode.none),
            (gone, 0, -1, "", ErrorCode.unknown_topic_id if by_id else ErrorCode.none),
        ]
        if version >= 5:
            assert [part.committed_leader_epoch for part in answered[0].topics[0].partitions] == [2, -1]
        if version >= 8:
            assert fetched(answered[1]) == [(orders, 0, -1, "", ErrorCode.none)]
            assert [group.group_id for group in answered] == ["g", "h"]
        asked = [("orders", 1), ("orders", 0)] + ([] if by_id else [("gone", 0)])
        assert fake.commands[0] == commands.OffsetFetch(
            group_id="g",
            partitions=tuple(TopicPartition(*each) for each in asked),
            member_id="m" if version >= 9 else None,
            member_epoch=4 if version >= 9 else -1,
            require_stable=version >= 7,
        )

    run()


@pytest.mark.parametrize("version", [version for version in versions(ApiKey.OFFSET_FETCH) if version >= 2])
def test_offset_fetch_of_all_partitions(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders", partitions=2)
        committed = (
            CommittedOffset("orders", 0, 5),
            CommittedOffset("deleted", 0, 6),
            CommittedOffset("orders", 1, 7),
            CommittedOffset("replaced", 0, 8, topic_id=UNKNOWN_ID),
        )
        fake = with_groups(bench, committed)
        (answered,) = groups_of(await bench.ask(fetch_request(version, ("g", None))), version)
        offsets = [(topic, index, offset) for topic, index, offset, _, _ in fetched(answered)]
        if version >= 10:  # the response cannot name a topic without an id
            assert offsets == [(topic_id, 0, 5), (topic_id, 1, 7), (UNKNOWN_ID, 0, 8)]
        else:
            assert offsets == [("orders", 0, 5), ("orders", 1, 7), ("deleted", 0, 6), ("replaced", 0, 8)]
        assert fake.commands[0].partitions is None

    run()


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_a_rejected_offset_fetch_is_an_error_of_the_group(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders")
        with_groups(bench, rejected(ErrorCode.not_coordinator))
        request = fetch_request(version, ("g", [("orders", topic_id, (0, 1))]))
        (answered,) = groups_of(await bench.ask(request), version)
        if version >= 2:
            assert (answered.error_code, answered.topics) == (ErrorCode.not_coordinator, ())
        else:  # version 1 has an error code only for each partition
            assert fetched(answered) == [
                ("orders", index, -1, "", ErrorCode.not_coordinator) for index in (0, 1)
            ]

    run()


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_an_offset_fetch_that_cannot_be_answered_gets_an_error_that_old_consumers_retry(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders")
        with_groups(bench, rejected(ErrorCode.coordinator_not_available))
        request = fetch_request(version, ("g", [("orders", topic_id, (0, 1))]))
        (answered,) = groups_of(await bench.ask(request), version)
        if version >= 2:
            assert (answered.error_code, answered.topics) == (ErrorCode.not_coordinator, ())
        else:
            assert [code for *_, code in fetched(answered)] == [ErrorCode.not_coordinator] * 2

    run()


def test_an_offset_of_a_deleted_topic_of_the_same_name_is_not_returned() -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders")
        with_groups(bench, (CommittedOffset("orders", 0, 5, topic_id=UNKNOWN_ID),))
        (by_id,) = (await bench.ask(fetch_request(10, ("g", [("", topic_id, (0,))])))).groups
        assert fetched(by_id) == [(topic_id, 0, -1, "", ErrorCode.none)]
        (by_name,) = (await bench.ask(fetch_request(9, ("g", [("orders", None, (0,))])))).groups
        assert fetched(by_name) == [("orders", 0, 5, "", ErrorCode.none)]

    run()


def test_an_unstable_offset_is_an_error_of_its_partition() -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        with_groups(bench, (CommittedOffset("orders", 0, error_code=ErrorCode.unstable_offset_commit),))
        (group,) = (await bench.ask(fetch_request(9, ("g", [("orders", None, (0,))])))).groups
        assert fetched(group) == [("orders", 0, -1, "", ErrorCode.unstable_offset_commit)]
        assert group.error_code is ErrorCode.none

    run()


def test_offset_delete_submits_only_existing_partitions_to_the_group() -> None:
    def delete(command: commands.OffsetDelete) -> Any:
        return tuple(
            PartitionError(*each, ErrorCode.group_subscribed_to_topic) for each in command.partitions
        )

    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("orders")
        fake = with_groups(bench, delete)
        topics = [
            {"name": "orders", "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
            {"name": "gone", "partitions": [{"partition_index": 0}]},
        ]
        request = message(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        response = await bench.ask(request)
        assert response.error_code is ErrorCode.none
        assert answers(response) == [
            ("orders", 0, ErrorCode.group_subscribed_to_topic),
            ("orders", 1, ErrorCode.unknown_topic_or_partition),
            ("gone", 0, ErrorCode.unknown_topic_or_partition),
        ]
        assert fake.commands[0].partitions == (TopicPartition("orders", 0),)

        with_groups(bench, rejected(ErrorCode.group_id_not_found))
        response = await bench.ask(request)
        assert (response.error_code, response.topics) == (ErrorCode.group_id_not_found, ())

    run()


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_repeated_commit_gets_the_same_response_and_stores_the_new_offsets(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("orders", partitions=2)
        await bench.services.groups.get().find_coordinator("g")
        nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        answered = []
        for offset in range(1, 5):
            parts = [partition(0, offset), partition(1, 10 * offset)]
            request = commit_request(version, ("orders", topic_id, parts), **nobody)
            answered.append(answers(await bench.ask(request)))
        topic = topic_id if version >= 10 else "orders"
        assert answered == [[(topic, 0, ErrorCode.none), (topic, 1, ErrorCode.none)]] * 4
        fetched = (
            bench.services.groups.get().submit("g", commands.OffsetFetch(group_id="g", partitions=None)).value
        )
        assert isinstance(fetched, tuple)
        assert [(each.partition, each.offset, each.metadata) for each in fetched] == [
            (0, 4, "note"),
            (1, 40, "note"),
        ]

    run()


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_repeated_commit_keeps_its_retention(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("orders")
        await bench.services.groups.get().find_coordinator("g")
        nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
        for offset in range(1, 6):
            request = commit_request(
                version,
                ("orders", None, [partition(0, offset)]),
                retention_time=timedelta(minutes=1),
                **nobody,
            )
            assert answers(await bench.ask(request)) == [("orders", 0, ErrorCode.none)]
            runtime = bench.services.groups.get().runtimes.for_key("g")
            assert runtime is not None
            durable: Any = runtime.shard.offsets._offsets.durable_state()
            value = durable[0]["g"]["orders"][0]
            assert (value.offset, value.expire_timestamp) == (offset, value.commit_timestamp + 60_000)
            await asyncio.sleep(1)

    run()


def test_a_repeated_commit_is_rejected_if_its_topic_is_deleted_or_its_group_has_members() -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("orders", partitions=1)
        await bench.services.groups.get().find_coordinator("g")
        nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        request = commit_request(9, ("orders", None, [partition(0)]), **nobody)
        for _ in range(3):
            assert answers(await bench.ask(request)) == [("orders", 0, ErrorCode.none)]
        runtime = bench.services.groups.get().runtimes.for_key("g")
        assert runtime is not None
        runtime.shard.state.groups["g"].check_offset_commit = refuse  # type: ignore[assignment, method-assign]
        assert answers(await bench.ask(request)) == [("orders", 0, ErrorCode.unknown_member_id)]
        gone = DeleteTopicState(name=TopicName("orders"), topic_id=None)
        await bench.ask(DeleteTopicsRequest(topics=(gone,), timeout=timedelta(seconds=1)))
        assert answers(await bench.ask(request)) == [("orders", 0, ErrorCode.unknown_topic_or_partition)]

    def refuse(*_: Any) -> None:
        raise rejected(ErrorCode.unknown_member_id)

    run()
