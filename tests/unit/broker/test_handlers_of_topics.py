"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions over the wire."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsRequestV5
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from tests.unit.broker.broker_bench import HOST, PORT, Bench, on_broker

from ottla.model.errors import ErrorCode

SECOND = timedelta(seconds=1)
CREATE = range(2, 8)
METADATA = range(14)


def new_topic(name: str, partitions: int = 1, factor: int = 1, **options: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=options.get("assignments", ()),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in options.get("configs", {}).items()
        ),
    )


def metadata_request(*names: str, create: bool = False, **options: Any) -> MetadataRequest:
    defaults: dict[str, Any] = {
        "topics": tuple(MetadataRequestTopic(topic_id=None, name=name) for name in names),
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }
    return MetadataRequest(**(defaults | options))


@pytest.mark.parametrize("version", CREATE)
def test_create_topics_creates_a_topic_in_every_version(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        request = CreateTopicsRequest(
            topics=(new_topic("journal", 3, configs={"retention.ms": "1000"}),), timeout=SECOND
        )
        (result,) = (await bench.ask(request, version)).topics
        assert (result.name, result.error_code) == ("journal", ErrorCode.none)
        topic = bench.services.metadata.image.topics["journal"]
        assert len(topic.partitions) == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert {c.name: c.value for c in result.configs}["retention.ms"] == "1000"
        if version >= 7:
            assert result.topic_id == topic.topic_id
        (again,) = (await bench.ask(request, version)).topics
        assert again.error_code is ErrorCode.topic_already_exists

    run()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (new_topic("a/b"), ErrorCode.invalid_topic_exception),
        (new_topic(""), ErrorCode.invalid_topic_exception),
        (new_topic(".."), ErrorCode.invalid_topic_exception),
        (new_topic("x" * 250), ErrorCode.invalid_topic_exception),
        (new_topic("t", 0), ErrorCode.invalid_partitions),
        (new_topic("t", 1, 2), ErrorCode.invalid_replication_factor),
        (new_topic("t", 1, 0), ErrorCode.invalid_replication_factor),
        (new_topic("t", configs={"no.such": "1"}), ErrorCode.invalid_config),
        (new_topic("t", configs={"retention.ms": "x"}), ErrorCode.invalid_config),
        (
            new_topic(
                "t",
                -1,
                -1,
                assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(9,)),),
            ),
            ErrorCode.invalid_replica_assignment,
        ),
    ],
)
def test_create_topics_rejects_with_a_message_and_creates_nothing(
    topic: CreatableTopic, expected: ErrorCode
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        request = CreateTopicsRequest(topics=(topic, new_topic("good")), timeout=SECOND)
        rejected, created = (await bench.ask(request)).topics
        assert rejected.error_code is expected
        assert rejected.error_message
        assert created.error_code is ErrorCode.none
        assert set(bench.services.metadata.image.topics) == {"good"}

    run()


@on_broker(num_partitions="5")
async def test_create_topics_uses_defaults_for_minus_one_and_assignments_as_sent(bench: Bench) -> None:
    assigned = (
        CreatableReplicaAssignment(partition_index=0, broker_ids=(1,)),
        CreatableReplicaAssignment(partition_index=1, broker_ids=(1,)),
    )
    request = CreateTopicsRequest(
        topics=(new_topic("defaults", -1, -1), new_topic("assigned", -1, -1, assignments=assigned)),
        timeout=SECOND,
    )
    assert [t.num_partitions for t in (await bench.ask(request)).topics] == [5, 2]


@on_broker()
async def test_create_topics_with_validate_only_creates_nothing(bench: Bench) -> None:
    request = CreateTopicsRequest(topics=(new_topic("journal"),), timeout=SECOND, validate_only=True)
    (result,) = (await bench.ask(request)).topics
    assert result.error_code is ErrorCode.none
    assert not bench.services.metadata.image.topics


# -- Metadata


@pytest.mark.parametrize("version", METADATA)
def test_metadata_describes_a_topic_in_every_version(version: int) -> None:
    @on_broker(broker_rack="r1")
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal", 2)
        response = await bench.ask(metadata_request("journal"), version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, HOST, PORT)
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("journal", ErrorCode.none)
        assert sorted(partition.partition_index for partition in topic.partitions) == [0, 1]
        assert all(partition.leader_id == 1 for partition in topic.partitions)
        if version >= 1:
            assert (response.controller_id, broker.rack) == (1, "r1")
        if version >= 2:
            assert response.cluster_id == bench.services.cluster_id
        if version >= 7:
            assert [partition.leader_epoch for partition in topic.partitions] == [0, 0]
        if version >= 10:
            assert topic.topic_id == topic_id

    run()


@pytest.mark.parametrize("version", [0, 1, 13])
def test_metadata_of_all_topics_and_of_none(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        for name in ("a", "b"):
            await bench.create(name)
        everything = metadata_request() if version == 0 else metadata_request(topics=None)
        assert {topic.name for topic in (await bench.ask(everything, version)).topics} == {"a", "b"}
        if version > 0:
            assert (await bench.ask(metadata_request(), version)).topics == ()

    run()


@on_broker()
async def test_metadata_of_unknown_topics_ids_and_bad_names(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    request = metadata_request(
        topics=(
            MetadataRequestTopic(topic_id=None, name="nobody"),
            MetadataRequestTopic(topic_id=None, name="a/b"),
            MetadataRequestTopic(topic_id=UUID(int=7), name=None),
            MetadataRequestTopic(topic_id=topic_id, name=None),
        )
    )
    topics = (await bench.ask(request)).topics
    assert [topic.error_code for topic in topics] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
        ErrorCode.unknown_topic_id,
        ErrorCode.none,
    ]
    assert topics[3].name == "journal"


@on_broker()
async def test_metadata_creates_topics_only_if_client_and_broker_allow_it(bench: Bench) -> None:
    (rejected,) = (await bench.ask(metadata_request("made", create=False))).topics
    assert rejected.error_code is ErrorCode.unknown_topic_or_partition
    (made,) = (await bench.ask(metadata_request("made", create=True))).topics
    assert (made.error_code, len(made.partitions)) == (ErrorCode.none, 1)
    (bad,) = (await bench.ask(metadata_request("a/b", create=True))).topics
    assert bad.error_code is ErrorCode.invalid_topic_exception
    (internal,) = (await bench.ask(metadata_request("__consumer_offsets", create=True))).topics
    assert (internal.error_code, internal.is_internal) == (ErrorCode.unknown_topic_or_partition, True)
    assert set(bench.services.metadata.image.topics) == {"made"}


@on_broker(auto_create_topics_enable="false")
async def test_metadata_creates_nothing_if_the_broker_does_not_allow_it(bench: Bench) -> None:
    (rejected,) = (await bench.ask(metadata_request("made", create=True))).topics
    assert rejected.error_code is ErrorCode.unknown_topic_or_partition


@on_broker()
async def test_metadata_has_authorized_operations_only_on_request(bench: Bench) -> None:
    await bench.create("journal")
    (silent,) = (await bench.ask(metadata_request("journal"))).topics
    assert silent.topic_authorized_operations == -(2**31)
    (told,) = (await bench.ask(metadata_request("journal", include_topic_authorized_operations=True))).topics
    assert told.topic_authorized_operations == 0b110111111000


@on_broker(advertised_listeners="PLAINTEXT://kafka.example:1234")
async def test_metadata_has_the_advertised_address_if_there_is_one(bench: Bench) -> None:
    (broker,) = (await bench.ask(metadata_request())).brokers
    assert (broker.host, broker.port) == ("kafka.example", 1234)


# -- DeleteTopics


@pytest.mark.parametrize("version", range(1, 6))
def test_delete_topics_by_name_in_the_versions_without_topic_ids(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        request = DeleteTopicsRequestV5(topic_names=("journal", "nobody"), timeout=SECOND)
        gone, unknown = (await bench.ask(request, version)).responses
        assert (gone.name, gone.error_code) == ("journal", ErrorCode.none)
        assert unknown.error_code is ErrorCode.unknown_topic_or_partition
        assert not bench.services.metadata.image.topics

    run()


@on_broker()
async def test_delete_topics_by_id_rejects_an_unknown_id(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    request = DeleteTopicsRequest(
        topics=(
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name=None, topic_id=UUID(int=7)),
        ),
        timeout=SECOND,
    )
    gone, unknown = (await bench.ask(request)).responses
    assert (gone.name, gone.error_code) == ("journal", ErrorCode.none)
    assert unknown.error_code is ErrorCode.unknown_topic_id


@pytest.mark.parametrize(("version", "expected"), [(1, "invalid_request"), (3, "topic_deletion_disabled")])
def test_delete_topics_can_be_disabled(version: int, expected: str) -> None:
    @on_broker(delete_topic_enable="false")
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        request = DeleteTopicsRequestV5(topic_names=("journal",), timeout=SECOND)
        (rejected,) = (await bench.ask(request, version)).responses
        assert rejected.error_code is ErrorCode[expected]
        assert "journal" in bench.services.metadata.image.topics

    run()


# -- CreatePartitions


def more_partitions(
    topic: str, count: int, assignments: tuple[Any, ...] | None = None, *, validate_only: bool = False
) -> CreatePartitionsRequest:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=(wanted,), timeout=SECOND, validate_only=validate_only)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_adds_partitions_that_serve_at_once(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        (result,) = (await bench.ask(more_partitions("journal", 3), version)).results
        assert result.error_code is ErrorCode.none
        assert (await bench.produce("journal", b"a", partition=2)).base_offset == 0

    run()


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (2, None, ErrorCode.invalid_partitions),
        (1, None, ErrorCode.invalid_partitions),
        (0, None, ErrorCode.invalid_partitions),
        (3, (CreatePartitionsAssignment(broker_ids=(9,)),), ErrorCode.invalid_replica_assignment),
        (4, (CreatePartitionsAssignment(broker_ids=(1,)),), ErrorCode.invalid_replica_assignment),
    ],
)
def test_create_partitions_rejects_with_a_message(count: int, assignments: Any, expected: ErrorCode) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", 2)
        (result,) = (await bench.ask(more_partitions("journal", count, assignments))).results
        assert result.error_code is expected
        assert result.error_message
        assert len(bench.services.metadata.image.topics["journal"].partitions) == 2

    run()


@on_broker()
async def test_create_partitions_of_an_unknown_topic_is_rejected(bench: Bench) -> None:
    (result,) = (await bench.ask(more_partitions("nobody", 3))).results
    assert result.error_code is ErrorCode.unknown_topic_or_partition


@on_broker()
async def test_create_partitions_with_validate_only_adds_nothing(bench: Bench) -> None:
    await bench.create("journal")
    (result,) = (await bench.ask(more_partitions("journal", 3, validate_only=True))).results
    assert result.error_code is ErrorCode.none
    assert len(bench.services.metadata.image.topics["journal"].partitions) == 1


# -- DescribeTopicPartitions


def describe(*names: str, limit: int = 2000, cursor: Any = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor,
    )


@on_broker()
async def test_describe_topic_partitions_goes_page_by_page_over_topics_in_order(bench: Bench) -> None:
    for name, partitions in (("c", 1), ("a", 3), ("b", 2)):
        await bench.create(name, partitions)
    pages: list[list[tuple[str, int]]] = []
    cursor = None
    while True:
        response = await bench.ask(describe(limit=2, cursor=cursor))
        pages.append([(t.name, p.partition_index) for t in response.topics for p in t.partitions])
        if response.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )
    assert pages == [[("a", 0), ("a", 1)], [("a", 2), ("b", 0)], [("b", 1), ("c", 0)]]


@on_broker()
async def test_describe_topic_partitions_has_errors_for_unknown_topics(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    topics = (await bench.ask(describe("nobody", "journal", "a/b", "journal"))).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [
        ("a/b", ErrorCode.invalid_topic_exception),
        ("journal", ErrorCode.none),
        ("nobody", ErrorCode.unknown_topic_or_partition),
    ]
    assert topics[1].topic_id == topic_id
    (partition,) = topics[1].partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (1,), (1,))


@on_broker()
async def test_a_cursor_at_a_deleted_topic_continues_with_the_next_topic(bench: Bench) -> None:
    for name in ("a", "c"):
        await bench.create(name, 2)
    response = await bench.ask(describe(cursor=Cursor(topic_name="b", partition_index=1)))
    assert [(t.name, len(t.partitions)) for t in response.topics] == [("c", 2)]


@on_broker()
async def test_an_invalid_cursor_is_rejected(bench: Bench) -> None:
    await bench.create("journal", 2)
    for cursor in (
        Cursor(topic_name="journal", partition_index=-1),
        Cursor(topic_name="other", partition_index=0),
    ):
        (topic,) = (await bench.ask(describe("journal", cursor=cursor))).topics
        assert (topic.name, topic.error_code) == ("journal", ErrorCode.invalid_request)


@on_broker()
async def test_a_page_has_at_least_one_partition(bench: Bench) -> None:
    await bench.create("journal", 2)
    response = await bench.ask(describe("journal", limit=0))
    assert [len(topic.partitions) for topic in response.topics] == [1]


@on_broker(max_request_partition_size_limit="1")
async def test_the_broker_limits_the_partitions_of_a_page(bench: Bench) -> None:
    await bench.create("journal", 2)
    response = await bench.ask(describe("journal"))
    assert [len(topic.partitions) for topic in response.topics] == [1]
    assert response.next_cursor.partition_index == 1
