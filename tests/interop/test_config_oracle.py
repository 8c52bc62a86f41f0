"""Our config definitions compared with those of Apache Kafka, read with DescribeConfigs from a running Kafka."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8
from tests.interop.brokers import run_kafka
from tests.interop.wire import WireClient, request

from ottla.model.config import (
    BrokerConfig,
    ConfigEntry,
    ResourceType,
    describe_broker_configs,
    describe_client_metrics_configs,
    describe_default_broker_configs,
    describe_group_configs,
    describe_topic_configs,
    parse_properties,
    validate,
    validate_broker_configs,
    validate_group_configs,
    validate_topic_configs,
)

pytestmark = [pytest.mark.java, pytest.mark.slow]

DESCRIBE_CONFIGS = 32
INCREMENTAL_ALTER_CONFIGS = 44
TOPIC = "described"
TOPIC_OVERRIDES = {"retention.ms": "777", "cleanup.policy": "compact, delete,compact"}
# Kafka requires these configs; Ottla has defaults, which it lists as their last synonym.
REQUIRED_IN_KAFKA = {"node.id", "process.roles", "controller.listener.names"}


class Described(NamedTuple):
    """Everything in DescribeConfigs about one config except its documentation, which has our own words."""

    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    type: int
    synonyms: list[tuple[str, str | None, int]]


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a running Kafka, and its properties."""
    data_dir = tmp_path_factory.mktemp("oracle") / "data"
    settings = {"log.retention.minutes": "5", "log.roll.hours": "7", "ssl.keystore.password": "secret"}
    with run_kafka(data_dir, set=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_OVERRIDES)])[TOPIC].result(30)
        yield broker.bootstrap, parse_properties(Path(f"{data_dir}.server.properties").read_text())


@pytest.fixture
def ours(kafka: tuple[str, dict[str, str]]) -> BrokerConfig:
    """Our broker config with the same properties, and with those that Kafka sets when it formats its storage."""
    bootstrap, properties = kafka
    config = BrokerConfig(properties)
    default = {name: entry.value or "" for name, entry in ask(bootstrap, ResourceType.BROKER, "").items()}
    config.apply_dynamic({}, default)
    return config


def ask(bootstrap: str, resource_type: ResourceType, name: str) -> dict[str, Described]:
    resource = DescribeConfigsResource(
        resource_type=i8(resource_type), resource_name=name, configuration_keys=None
    )
    body = io.BytesIO()
    message = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=False
    )
    entity_writer(DescribeConfigsRequest)(body, message)
    with WireClient(bootstrap) as client:
        answer = client.ask(request(DESCRIBE_CONFIGS, 4, body.getvalue(), flexible=True))
    # The response header is the correlation id and an empty set of tagged fields.
    response, _ = entity_reader(DescribeConfigsResponse)(answer, 5)
    (result,) = response.results
    assert result.error_code == 0, result.error_message
    return {
        config.name: Described(
            config.value,
            config.read_only,
            config.config_source,
            config.is_sensitive,
            config.config_type,
            [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in result.configs
    }


def as_described(entries: list[ConfigEntry]) -> dict[str, Described]:
    return {
        entry.name: Described(
            entry.value,
            entry.read_only,
            entry.source,
            entry.is_sensitive,
            entry.type,
            [(name, value, source) for name, value, source in entry.synonyms],
        )
        for entry in entries
        if not entry.name.startswith("ottla.")
    }


def test_a_brokers_configs_are_kafkas(kafka: tuple[str, dict[str, str]], ours: BrokerConfig) -> None:
    theirs = ask(kafka[0], ResourceType.BROKER, "1")
    described = as_described(describe_broker_configs(ours))
    assert described.keys() == theirs.keys()
    for name in REQUIRED_IN_KAFKA:
        described[name].synonyms.pop()
    assert described == theirs


def test_the_configs_of_all_brokers_are_kafkas(kafka: tuple[str, dict[str, str]], ours: BrokerConfig) -> None:
    assert as_described(describe_default_broker_configs(ours)) == ask(kafka[0], ResourceType.BROKER, "")


def test_a_topics_configs_are_kafkas(kafka: tuple[str, dict[str, str]], ours: BrokerConfig) -> None:
    theirs = ask(kafka[0], ResourceType.TOPIC, TOPIC)
    assert as_described(describe_topic_configs(TOPIC_OVERRIDES, ours)) == theirs


def test_a_groups_configs_are_kafkas(kafka: tuple[str, dict[str, str]], ours: BrokerConfig) -> None:
    assert as_described(describe_group_configs({}, ours)) == ask(kafka[0], ResourceType.GROUP, "a-group")


def test_a_client_metrics_subscription_is_kafkas(kafka: tuple[str, dict[str, str]]) -> None:
    theirs = ask(kafka[0], ResourceType.CLIENT_METRICS, "a-subscription")
    assert as_described(describe_client_metrics_configs({})) == theirs


REFUSED = (
    (ResourceType.TOPIC, {"bogus": "1"}),
    (ResourceType.TOPIC, {"segment.bytes": "1"}),
    (ResourceType.TOPIC, {"segment.bytes": "many"}),
    (ResourceType.TOPIC, {"cleanup.policy": "keep"}),
    (ResourceType.TOPIC, {"cleanup.policy": "delete,"}),
    (ResourceType.TOPIC, {"compression.type": "none"}),
    (ResourceType.TOPIC, {"compression.gzip.level": "0"}),
    (ResourceType.TOPIC, {"min.cleanable.dirty.ratio": "1.5"}),
    (ResourceType.TOPIC, {"leader.replication.throttled.replicas": "x"}),
    (ResourceType.TOPIC, {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"}),
    (ResourceType.TOPIC, {"remote.storage.enable": "true"}),
    (ResourceType.GROUP, {"bogus": "1"}),
    (ResourceType.GROUP, {"consumer.session.timeout.ms": "1"}),
    (ResourceType.GROUP, {"share.heartbeat.interval.ms": "99999"}),
    (ResourceType.GROUP, {"share.auto.offset.reset": "first"}),
    (ResourceType.CLIENT_METRICS, {"interval.ms": "1"}),
    (ResourceType.CLIENT_METRICS, {"match": "color=red"}),
    (ResourceType.BROKER, {"node.id": "5"}),
    (ResourceType.BROKER, {"log.segment.bytes": "1"}),
    (ResourceType.BROKER, {"ssl.keystore.location": "/x"}),
    (ResourceType.BROKER, {"log.retention.ms": "0"}),
)


def test_errors_have_kafkas_messages(kafka: tuple[str, dict[str, str]], ours: BrokerConfig) -> None:
    for resource_type, configs in REFUSED:
        theirs = error_message(kafka[0], resource_type, configs)
        # Scala's `require` adds a prefix to its messages.
        assert our_error(resource_type, configs, ours) == theirs.removeprefix("requirement failed: "), configs


def our_error(resource_type: ResourceType, configs: dict[str, str], ours: BrokerConfig) -> str | None:
    if resource_type is ResourceType.TOPIC:
        return validate_topic_configs(configs, ours)
    if resource_type is ResourceType.GROUP:
        return validate_group_configs(configs, ours)
    if resource_type is ResourceType.BROKER:
        return validate_broker_configs(configs, ours, per_broker=True)
    ((name, value),) = configs.items()
    return validate(resource_type, name, value)


def error_message(bootstrap: str, resource_type: ResourceType, configs: dict[str, str]) -> str:
    name = {ResourceType.TOPIC: TOPIC, ResourceType.BROKER: "1"}.get(resource_type, "a-name")
    set_operation = i8(0)
    changes = tuple(
        AlterableConfig(name=config, value=value, config_operation=set_operation)
        for config, value in configs.items()
    )
    resource = AlterConfigsResource(resource_type=i8(resource_type), resource_name=name, configs=changes)
    body = io.BytesIO()
    message = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)
    entity_writer(IncrementalAlterConfigsRequest)(body, message)
    with WireClient(bootstrap) as client:
        answer = client.ask(request(INCREMENTAL_ALTER_CONFIGS, 1, body.getvalue(), flexible=True))
    response, _ = entity_reader(IncrementalAlterConfigsResponse)(answer, 5)
    (result,) = response.responses
    assert result.error_code != 0, configs
    return result.error_message or ""
