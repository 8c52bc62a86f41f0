"""Topics are created, get more partitions, and are deleted; rejected requests get Kafka's messages."""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from tests.unit.core.controller.controller_cluster import SETTINGS, Cluster

from ottla.core.controller.commands import (
    NO_ERROR,
    ApiError,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicToDelete,
)
from ottla.core.controller.image import UNASSIGNED_DIRECTORY, ConfigResource, ResourceType
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.codec import decode_record
from ottla.protocol.metadata_records.records import ConfigRecord, PartitionRecord, TopicRecord

ID = uuid.UUID(int=99)


def rejection(cluster: Cluster, topic: NewTopic) -> ApiError:
    before = cluster.image
    (result,) = cluster.submit(CreateTopics((topic,)))
    assert cluster.image == before
    return result.error


def test_a_topic_is_led_by_the_broker_in_epoch_0() -> None:
    cluster = Cluster()
    (result,) = cluster.submit(CreateTopics((NewTopic("a", ID, 2, 1),)))
    assert result[:5] == ("a", NO_ERROR, ID, 2, 1)
    topic = cluster.image.topics["a"]
    assert cluster.image.topics_by_id[ID] is topic
    assert list(topic.partitions) == [0, 1]
    partition = topic.partitions[1]
    assert (partition.leader, partition.leader_epoch, partition.isr, partition.replicas) == (1, 0, (1,), (1,))
    assert partition.directories == cluster.image.brokers[1].log_dirs


def test_minus_one_means_the_defaults() -> None:
    cluster = Cluster()
    (result,) = cluster.submit(CreateTopics((NewTopic("a", ID),)))
    assert (result.num_partitions, result.replication_factor) == (3, 1)


def test_a_broker_with_several_directories_chooses_one_itself() -> None:
    cluster = Cluster(brokers=0)
    cluster.start_broker(1, directories=2)
    cluster.create("a")
    assert cluster.image.topics["a"].partitions[0].directories == (UNASSIGNED_DIRECTORY,)


def test_config_records_come_between_the_topic_and_its_partitions() -> None:
    cluster = Cluster()
    start = len(cluster.log)
    cluster.create("a", configs=(("retention.ms", "1000"),))
    types = [type(decode_record(data)) for data in cluster.log[start:]]
    assert types == [TopicRecord, ConfigRecord, PartitionRecord]
    assert cluster.image.config(ResourceType.TOPIC, "a") == {"retention.ms": "1000"}


def test_validate_only_writes_no_records() -> None:
    cluster = Cluster()
    before = cluster.image
    (result,) = cluster.submit(CreateTopics((NewTopic("a", ID, 2, 1),), validate_only=True))
    assert (result.error, result.num_partitions) == (NO_ERROR, 2)
    assert cluster.image == before


def test_a_rejected_topic_does_not_affect_the_others() -> None:
    cluster = Cluster()
    bad, good = cluster.submit(
        CreateTopics((NewTopic("a b", ID, 1, 1), NewTopic("c", uuid.UUID(int=7), 1, 1)))
    )
    assert bad.error.code is ErrorCode.invalid_topic_exception
    assert good.error is NO_ERROR
    assert list(cluster.image.topics) == ["c"]


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic("taken", ID, 1, 1), "topic_already_exists", "Topic 'taken' already exists."),
        (
            NewTopic("", ID, 1, 1),
            "invalid_topic_exception",
            "Topic name is invalid: the empty string is not allowed",
        ),
        (
            NewTopic("x.y", ID, 1, 1),
            "invalid_topic_exception",
            "Topic 'x.y' collides with existing topic: x_y",
        ),
        (
            NewTopic("__cluster_metadata", ID, 1, 1),
            "invalid_request",
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            NewTopic("a", ID, 0, 1),
            "invalid_partitions",
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", ID, 1, 0),
            "invalid_replication_factor",
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("a", ID, 1, 2),
            "invalid_replication_factor",
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered.",
        ),
        (
            NewTopic("a", ID, 1, 1, configs=(("retention.ms", "abc"),)),
            "invalid_config",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            NewTopic("a", ID, 1, 1, configs=(("nope", "1"),)),
            "invalid_config",
            "Unknown topic config name: nope",
        ),
        (
            NewTopic("a", ID, 1, 1, configs=(("retention.ms", None),)),
            "invalid_config",
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("a", ID, -1, -1, ((0, (2,)),)),
            "invalid_replica_assignment",
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            NewTopic("a", ID, -1, -1, ((0, (1, 1)),)),
            "invalid_replica_assignment",
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("a", ID, -1, -1, ((0, ()),)),
            "invalid_replica_assignment",
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("a", ID, -1, -1, ((0, (1,)), (0, (1,)))),
            "invalid_replica_assignment",
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("a", ID, -1, -1, ((0, (1,)), (2, (1,)))),
            "invalid_replica_assignment",
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("a", ID, 2, -1, ((0, (1,)), (1, (1,)))),
            "invalid_request",
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("a", ID, -1, 1, ((0, (1,)),)),
            "invalid_request",
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, NewTopic) else None,
)
def test_a_rejected_topic_gets_kafkas_message(topic: NewTopic, code: str, message: str) -> None:
    cluster = Cluster()
    cluster.create("taken")
    cluster.create("x_y")
    assert rejection(cluster, topic) == ApiError(ErrorCode[code], message)


def test_a_topic_that_a_request_contains_twice_is_not_created() -> None:
    cluster = Cluster()
    results = cluster.submit(CreateTopics((NewTopic("a", ID, 1, 1), NewTopic("a", uuid.UUID(int=7), 1, 1))))
    assert [result.error.message for result in results] == ["Duplicate topic name."]
    assert not cluster.image.topics


def test_names_of_one_request_must_not_collide_either() -> None:
    cluster = Cluster()
    _, second = cluster.submit(
        CreateTopics((NewTopic("a.b", ID, 1, 1), NewTopic("a_b", uuid.UUID(int=7), 1, 1)))
    )
    assert second.error.message == "Topic 'a_b' collides with existing topic: a.b"


def test_more_than_ten_thousand_partitions_in_a_request_are_rejected() -> None:
    cluster = Cluster()
    assert rejection(cluster, NewTopic("a", ID, 10_001, 1)).code is ErrorCode.policy_violation
    both = (NewTopic("a", ID, 6000, 1), NewTopic("b", uuid.UUID(int=7), 6000, 1))
    results = cluster.submit(CreateTopics(both))
    assert {result.error.code for result in results} == {ErrorCode.policy_violation}
    assert not cluster.image.topics


def test_a_request_with_too_many_partitions_is_not_decided_to_its_end() -> None:
    validated: list[str] = []

    def validate(resource: ConfigResource, configs: Mapping[str, str], altered: Collection[str]) -> None:
        validated.append(resource.name)

    cluster = Cluster(settings=replace(SETTINGS, validate_configs=validate))
    names = ["a", "b", "c", "b", "d"]
    topics = tuple(NewTopic(name, cluster.new_id(), 6000, 1) for name in names)
    results = cluster.submit(CreateTopics((*topics, NewTopic("e", ID, 6000, 1))))
    assert validated == ["a", "c"]  # b is there twice
    assert [result.name for result in results] == ["a", "b", "c", "d", "e"]
    assert {result.error.code for result in results} == {ErrorCode.policy_violation}


def test_a_manual_assignment_is_used_unchanged() -> None:
    cluster = Cluster(brokers=3)
    cluster.create("a", -1, -1, assignments=((1, (3, 1)), (0, (2, 3))))
    partitions = cluster.image.topics["a"].partitions
    assert [partitions[index].replicas for index in (0, 1)] == [(2, 3), (3, 1)]
    assert [partitions[index].leader for index in (0, 1)] == [2, 3]


def test_a_topic_is_deleted_by_name_or_by_id_with_its_configs() -> None:
    cluster = Cluster()
    cluster.create("a", configs=(("retention.ms", "1"),))
    cluster.create("b")
    id_a, id_b = (cluster.image.topics[name].topic_id for name in "ab")
    results = cluster.submit(DeleteTopics((TopicToDelete(name="a"), TopicToDelete(topic_id=id_b))))
    assert results == (("a", id_a, NO_ERROR), ("b", id_b, NO_ERROR))
    assert not cluster.image.topics
    assert not cluster.image.topics_by_id
    assert ConfigResource(ResourceType.TOPIC, "a") not in cluster.image.configs


def test_a_deleted_name_can_be_created_again_without_the_old_configs() -> None:
    cluster = Cluster()
    cluster.create("a", configs=(("retention.ms", "1"),))
    cluster.submit(DeleteTopics((TopicToDelete(name="a"),)))
    cluster.create("a")
    assert cluster.image.config(ResourceType.TOPIC, "a") == {}


def test_deletions_without_a_topic_or_with_a_duplicate_are_rejected() -> None:
    cluster = Cluster()
    cluster.create("a")
    id_a = cluster.image.topics["a"].topic_id
    results = cluster.submit(
        DeleteTopics(
            (
                TopicToDelete(name="nope"),
                TopicToDelete(topic_id=ID),
                TopicToDelete(),
                TopicToDelete(name="b", topic_id=ID),
                TopicToDelete(name="c"),
                TopicToDelete(name="c"),
                TopicToDelete(name="a"),
                TopicToDelete(topic_id=id_a),
            )
        )
    )
    assert [result.error.code.name for result in results] == [
        "unknown_topic_or_partition",
        "unknown_topic_id",
        "invalid_request",
        "invalid_request",
        "invalid_request",
        "none",
        "invalid_request",
    ]
    assert not cluster.image.topics


def test_new_partitions_follow_the_existing_ones() -> None:
    cluster = Cluster(brokers=3)
    cluster.create("a", 2, 2)
    assert cluster.submit(CreatePartitions((NewPartitions("a", 4),))) == (("a", NO_ERROR),)
    partitions = cluster.image.topics["a"].partitions
    assert list(partitions) == [0, 1, 2, 3]
    assert len(partitions[3].replicas) == 2


def test_new_partitions_may_have_a_manual_assignment() -> None:
    cluster = Cluster(brokers=3)
    cluster.create("a", 1, 2)
    cluster.submit(CreatePartitions((NewPartitions("a", 2, ((3, 2),)),)))
    assert cluster.image.topics["a"].partitions[1].replicas == (3, 2)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewPartitions("nope", 9), "unknown_topic_or_partition", None),
        (NewPartitions("a", 2), "invalid_partitions", "Topic already has 2 partition(s)."),
        (
            NewPartitions("a", 1),
            "invalid_partitions",
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            NewPartitions("a", 4, ((1,),)),
            "invalid_replica_assignment",
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            NewPartitions("a", 3, ((2,),)),
            "invalid_replica_assignment",
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            NewPartitions("a", 99_999),
            "policy_violation",
            "Excessively large number of partitions per request: at most 10000 are allowed.",
        ),
    ],
)
def test_rejected_new_partitions_get_kafkas_message(
    topic: NewPartitions, code: str, message: str | None
) -> None:
    cluster = Cluster()
    cluster.create("a", 2)
    assert cluster.submit(CreatePartitions((topic,))) == ((topic.name, ApiError(ErrorCode[code], message)),)
    assert len(cluster.image.topics["a"].partitions) == 2
