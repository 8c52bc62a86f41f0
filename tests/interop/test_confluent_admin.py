"""Administration through librdkafka: topics, partitions, configs, the cluster, deletion of records, offsets."""

from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import (
    TIMEOUT_S,
    admin_of,
    consumer_at,
    create_topic,
    flush,
    produce_values,
    read_records,
    take,
    wait_until,
)

pytestmark = pytest.mark.contract


def error_of(future: Any) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        future.result(TIMEOUT_S)
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    return error


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return admin_of(broker.bootstrap)


def configs_of(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def broker_id(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=TIMEOUT_S).brokers)))


def test_a_created_topic_is_listed_and_described(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=3)
    assert topic_name in admin.list_topics(timeout=TIMEOUT_S).topics
    described = admin.describe_topics(TopicCollection([topic_name]))[topic_name].result(TIMEOUT_S)
    assert described.name == topic_name
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert str(partition.leader.id) == broker_id(admin)
        assert [node.id for node in partition.replicas] == [node.id for node in partition.isr]
    assert str(described.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")


def test_a_topic_with_assigned_replicas_and_one_with_the_brokers_defaults_are_created(
    admin: AdminClient, topic_name: str
) -> None:
    by_hand = NewTopic(
        topic_name, num_partitions=2, replica_assignment=[[int(broker_id(admin))], [int(broker_id(admin))]]
    )
    by_default = NewTopic(f"{topic_name}-default", num_partitions=-1, replication_factor=-1)
    for future in admin.create_topics([by_hand, by_default]).values():
        future.result(TIMEOUT_S)
    wait_until(
        lambda: len(admin.list_topics(topic_name).topics[topic_name].partitions) == 2, "two partitions"
    )
    wait_until(
        lambda: len(admin.list_topics(by_default.topic).topics[by_default.topic].partitions) == 1,
        "one partition",
    )


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-such-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("no-such-config", 1, 1, config={"retention.sm": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-range", 1, 1, config={"min.cleanable.dirty.ratio": "2"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic("no-such-broker", num_partitions=1, replica_assignment=[[4_711]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)
def test_a_wrong_topic_is_rejected_with_kafkas_code(admin: AdminClient, topic: NewTopic, code: int) -> None:
    assert error_of(admin.create_topics([topic])[topic.topic]).code() == code


def test_names_that_differ_only_in_dot_and_underscore_collide(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    name = f"{topic_name}.a"
    create_topic(broker.bootstrap, name)
    assert (
        error_of(admin.create_topics([NewTopic(name, 1, 1)])[name]).code() == KafkaError.TOPIC_ALREADY_EXISTS
    )
    # In metric names a dot becomes an underscore: the two names would collide.
    clash = f"{topic_name}_a"
    assert error_of(admin.create_topics([NewTopic(clash, 1, 1)])[clash]).code() == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 1, 1)], validate_only=True)[topic_name].result(TIMEOUT_S)
    assert topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_deleted_topic_is_gone_and_its_name_free_again(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"old"])
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)
    wait_until(lambda: topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone")
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"new"])
    assert [record.value() for record in read_records(broker.bootstrap, topic_name, 1)] == [b"new"]
    unknown = f"{topic_name}-unknown"
    refused = error_of(admin.delete_topics([unknown])[unknown])
    assert refused.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added_and_never_removed(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    admin.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(TIMEOUT_S)
    wait_until(
        lambda: len(admin.list_topics(topic_name, timeout=TIMEOUT_S).topics[topic_name].partitions) == 5,
        "the topic has five partitions",
    )
    for count in (5, 4):
        refused = error_of(admin.create_partitions([NewPartitions(topic_name, count)])[topic_name])
        assert refused.code() == KafkaError.INVALID_PARTITIONS
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(5):
        producer.produce(topic_name, str(partition).encode(), partition=partition)
    flush(producer)
    assert len(read_records(broker.bootstrap, topic_name, 5, partitions=range(5))) == 5


def test_topic_configs_are_described_with_their_source(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"retention.ms": "60000"})
    configs = configs_of(admin, ResourceType.TOPIC, topic_name)
    assert configs["retention.ms"].value == "60000"
    # The client declares a ConfigSource and returns its number.
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # type: ignore[comparison-overlap]
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value  # type: ignore[comparison-overlap]
    assert configs["max.message.bytes"].value == "1048588"
    assert "message.max.bytes" in configs["max.message.bytes"].synonyms


def test_incremental_alter_sets_appends_subtracts_and_deletes(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"retention.ms": "60000"})

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def value_is(name: str, value: str) -> bool:
        return bool(configs_of(admin, ResourceType.TOPIC, topic_name)[name].value == value)

    alter("retention.bytes", "1000000", AlterConfigOpType.SET)
    wait_until(lambda: value_is("retention.bytes", "1000000"), "retention.bytes is set")
    assert value_is("retention.ms", "60000")
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_until(lambda: value_is("cleanup.policy", "delete,compact"), "compact is appended")
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    wait_until(lambda: value_is("cleanup.policy", "compact"), "delete is subtracted")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_until(lambda: value_is("retention.ms", "604800000"), "retention.ms is the default again")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_legacy_alter_replaces_all_configs_of_the_topic(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, config={"retention.ms": "60000"})
    resource = ConfigResource(ResourceType.TOPIC, topic_name, set_config={"retention.bytes": "5000"})
    admin.alter_configs([resource])[resource].result(TIMEOUT_S)
    wait_until(
        lambda: configs_of(admin, ResourceType.TOPIC, topic_name)["retention.bytes"].value == "5000",
        "retention.bytes is set",
    )
    assert configs_of(admin, ResourceType.TOPIC, topic_name)["retention.ms"].value == "604800000"


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "soon"), ("no.such.config", "1")])
def test_a_wrong_config_is_rejected_and_named(
    broker: RunningBroker, admin: AdminClient, topic_name: str, name: str, value: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=[entry])
    refused = error_of(admin.incremental_alter_configs([resource])[resource])
    assert refused.code() == KafkaError.INVALID_CONFIG
    assert name in refused.str()


def test_configs_of_an_unknown_topic_are_rejected(admin: AdminClient, topic_name: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    refused = error_of(admin.describe_configs([resource])[resource])
    assert refused.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_dynamic_broker_config_takes_effect_and_a_static_one_is_rejected(admin: AdminClient) -> None:
    node = broker_id(admin)

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> Any:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])
        return admin.incremental_alter_configs([resource])[resource]

    alter("log.cleaner.threads", "2", AlterConfigOpType.SET).result(TIMEOUT_S)
    wait_until(
        lambda: configs_of(admin, ResourceType.BROKER, node)["log.cleaner.threads"].value == "2",
        "log.cleaner.threads is 2",
    )
    described = configs_of(admin, ResourceType.BROKER, node)["log.cleaner.threads"]
    assert described.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value  # type: ignore[comparison-overlap]
    assert (
        error_of(alter("log.dirs", "/elsewhere", AlterConfigOpType.SET)).code() == KafkaError.INVALID_REQUEST
    )
    alter("log.cleaner.threads", None, AlterConfigOpType.DELETE).result(TIMEOUT_S)


def test_the_cluster_is_described(broker: RunningBroker, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    assert len(described.cluster_id) == 22
    (node,) = described.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert described.controller.id == node.id


def test_deleted_records_are_gone_up_to_the_offset(
    broker: RunningBroker, admin: AdminClient, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [str(n).encode() for n in range(10)])
    upto = Position(topic_name, 0, 4)
    assert admin.delete_records([upto])[upto].result(TIMEOUT_S).low_watermark == 4
    with consumer_at(
        broker.bootstrap, [Position(topic_name, 0, 0)], auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.get_watermark_offsets(Position(topic_name, 0), timeout=TIMEOUT_S) == (4, 10)
        assert [record.offset() for record in take(consumer, 6)] == [4, 5, 6, 7, 8, 9]
    everything = Position(topic_name, 0, -1)
    assert admin.delete_records([everything])[everything].result(TIMEOUT_S).low_watermark == 10
    beyond = Position(topic_name, 0, 11)
    assert error_of(admin.delete_records([beyond])[beyond]).code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_every_spec(broker: RunningBroker, admin: AdminClient, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for timestamp in (1_000, 2_000, 9_000, 3_000, 4_000):
        producer.produce(topic_name, b"v", partition=0, timestamp=timestamp)
    flush(producer)
    position = Position(topic_name, 0)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        found = admin.list_offsets({position: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        result = found[position].result(TIMEOUT_S)
        return result.offset, result.timestamp

    assert listed(OffsetSpec.earliest())[0] == 0
    assert listed(OffsetSpec.latest())[0] == 5
    assert listed(OffsetSpec.max_timestamp()) == (2, 9_000)
    assert listed(OffsetSpec.for_timestamp(1_500)) == (1, 2_000)
    assert listed(OffsetSpec.for_timestamp(2_500)) == (2, 9_000)
    assert listed(OffsetSpec.for_timestamp(9_001))[0] == -1


def test_offsets_for_a_time_are_exact_to_the_record_in_every_codec(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    for batch, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 100}
        )
        for n in range(100):
            producer.produce(topic_name, b"v" * 50, partition=0, timestamp=10_000 * (batch + 1) + 10 * n)
        flush(producer)
    with consumer_at(broker.bootstrap, []) as consumer:
        for batch in range(5):
            for n, offset in ((0, 0), (37, 37), (99, 99)):
                asked = Position(topic_name, 0, 10_000 * (batch + 1) + 10 * n - 5)
                (found,) = consumer.offsets_for_times([asked], timeout=TIMEOUT_S)
                assert found.offset == 100 * batch + offset
        consumer.assign([Position(topic_name, 0, 237)])
        assert take(consumer, 1)[0].timestamp()[1] == 30_370


def test_a_consumer_out_of_range_gets_the_error_or_starts_over(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    produce_values(broker.bootstrap, topic_name, [b"a", b"b"])
    with (
        consumer_at(broker.bootstrap, [Position(topic_name, 0, 99)]) as consumer,
        pytest.raises(KafkaException) as refused,
    ):
        take(consumer, 1)
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    with consumer_at(
        broker.bootstrap, [Position(topic_name, 0, 99)], auto_offset_reset="earliest"
    ) as consumer:
        assert [record.value() for record in take(consumer, 2)] == [b"a", b"b"]


def test_a_description_of_an_unknown_topic_says_so_and_does_not_create_it(
    admin: AdminClient, topic_name: str
) -> None:
    refused = error_of(admin.describe_topics(TopicCollection([topic_name]))[topic_name])
    assert refused.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics
