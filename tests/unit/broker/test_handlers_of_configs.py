"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, and changes that apply at once."""

import asyncio
from typing import Any

import pytest
from kio.schema.alter_configs.v2.request import AlterableConfig as ReplacedConfig
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource as ReplacedResource
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_config_resources.v0.request import ListConfigResourcesRequest as ListRequestV0
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from tests.unit.broker.broker_bench import Bench, on_broker

from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.records.records import read_batches

TOPIC, BROKER, BROKER_LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
CLIENT_METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(resource_type: int, name: str, *keys: str, **options: bool) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys or None
    )
    return DescribeConfigsRequest(resources=(resource,), **options)


async def described(bench: Bench, request: DescribeConfigsRequest, version: int | None = None) -> Any:
    (result,) = (await bench.ask(request, version)).results
    return result


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_a_topic_in_every_version(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", retention_ms="1000")
        result = await described(bench, describe(TOPIC, "journal", include_synonyms=True), version)
        assert (result.error_code, result.resource_type, result.resource_name) == (
            ErrorCode.none,
            2,
            "journal",
        )
        configs = {config.name: config for config in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
        assert configs["segment.bytes"].config_source == 5
        assert configs["retention.ms"].synonyms[0].name == "retention.ms"
        if version >= 3:
            assert configs["retention.ms"].config_type == 5
            assert configs["retention.ms"].documentation is None

    run()


@on_broker()
async def test_describe_configs_returns_documentation_synonyms_and_single_keys_on_request(
    bench: Bench,
) -> None:
    await bench.create("journal")
    request = describe(TOPIC, "journal", "retention.ms", "no.such", include_documentation=True)
    (config,) = (await described(bench, request)).configs
    assert config.name == "retention.ms"
    assert len(config.documentation) > 50
    assert config.synonyms == ()


@on_broker()
async def test_describe_configs_of_a_broker_of_the_defaults_of_a_group_and_of_client_metrics(
    bench: Bench,
) -> None:
    await bench.configure(BROKER, "", log_retention_ms="7000")
    await bench.configure(CLIENT_METRICS, "sub", metrics="org.apache", interval_ms="5000")
    await bench.configure(GROUP, "g", consumer_session_timeout_ms="50000")
    own = {c.name: c for c in (await described(bench, describe(BROKER, "1"))).configs}
    assert (own["log.retention.ms"].value, own["log.retention.ms"].config_source) == ("7000", 3)
    assert (own["node.id"].value, own["node.id"].read_only) == ("1", True)
    defaults = (await described(bench, describe(BROKER, ""))).configs
    # With eligible leader replicas (KIP-966), min.insync.replicas is set for the whole cluster.
    assert [(c.name, c.value) for c in defaults] == [
        ("min.insync.replicas", "1"),
        ("log.retention.ms", "7000"),
    ]
    metrics = {c.name: c.value for c in (await described(bench, describe(CLIENT_METRICS, "sub"))).configs}
    assert (metrics["metrics"], metrics["interval.ms"]) == ("org.apache", "5000")
    group = {c.name: c.value for c in (await described(bench, describe(GROUP, "g"))).configs}
    assert group["consumer.session.timeout.ms"] == "50000"


@pytest.mark.parametrize(
    ("resource_type", "name", "expected"),
    [
        (TOPIC, "nobody", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a/b", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (BROKER_LOGGER, "", ErrorCode.invalid_request),
        (BROKER_LOGGER, "2", ErrorCode.invalid_request),
        (CLIENT_METRICS, "", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (0, "x", ErrorCode.invalid_request),
        (99, "x", ErrorCode.invalid_request),
    ],
)
def test_describe_configs_rejects_with_a_message(resource_type: int, name: str, expected: ErrorCode) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        result = await described(bench, describe(resource_type, name))
        assert (result.error_code, result.configs) == (expected, ())
        assert result.error_message

    run()


# -- altering


def replace(name: str, configs: dict[str, str], resource_type: int = TOPIC, **options: Any) -> Any:
    resource = ReplacedResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(ReplacedConfig(name=key, value=value) for key, value in configs.items()),
    )
    return AlterConfigsRequest(resources=(resource,), validate_only=options.get("validate_only", False))


def alter(
    name: str, *changes: tuple[str, int, str | None], resource_type: int = TOPIC, **options: Any
) -> Any:
    resource = AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ),
    )
    return IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=options.get("validate_only", False)
    )


def overrides(bench: Bench, topic: str = "journal") -> dict[str, str]:
    return dict(bench.services.metadata.image.config(TOPIC, topic))


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_configs_of_the_resource(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", retention_ms="1000", segment_bytes="2000000")
        (result,) = (await bench.ask(replace("journal", {"retention.ms": "5000"}), version)).responses
        assert (result.error_code, result.resource_name) == (ErrorCode.none, "journal")
        assert overrides(bench) == {"retention.ms": "5000"}

    run()


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_sets_deletes_appends_and_subtracts(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", retention_ms="1000", cleanup_policy="delete")
        for change, expected in (
            (("segment.bytes", SET, "2000000"), {"segment.bytes": "2000000"}),
            (("retention.ms", DELETE, None), {"retention.ms": None}),
            (("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
            (("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        ):
            (result,) = (await bench.ask(alter("journal", change), version)).responses
            assert result.error_code is ErrorCode.none
            for key, value in expected.items():
                assert overrides(bench).get(key) == value

    run()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (alter("nobody", ("retention.ms", SET, "1")), ErrorCode.unknown_topic_or_partition),
        (alter("journal", ("no.such", SET, "1")), ErrorCode.invalid_config),
        (alter("journal", ("retention.ms", SET, "x")), ErrorCode.invalid_config),
        (alter("journal", ("retention.ms", SET, None)), ErrorCode.invalid_request),
        (alter("journal", ("retention.ms", APPEND, "1")), ErrorCode.invalid_config),
        (alter("journal", ("retention.ms", 9, "1")), ErrorCode.invalid_request),
        (
            alter("journal", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
            ErrorCode.invalid_request,
        ),
        (alter("1", ("node.id", SET, "2"), resource_type=BROKER), ErrorCode.invalid_request),
        (alter("1", ("log.retention.ms", SET, "x"), resource_type=BROKER), ErrorCode.invalid_request),
        (replace("nobody", {"retention.ms": "1"}), ErrorCode.unknown_topic_or_partition),
        (replace("journal", {"retention.ms": "x"}), ErrorCode.invalid_config),
    ],
)
def test_altering_invalid_configs_is_rejected_with_a_message_and_changes_nothing(
    request_: Any, expected: ErrorCode
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal", retention_ms="1000")
        (result,) = (await bench.ask(request_)).responses
        assert result.error_code is expected
        assert result.error_message
        assert overrides(bench) == {"retention.ms": "1000"}

    run()


@on_broker()
async def test_altering_with_validate_only_changes_nothing(bench: Bench) -> None:
    await bench.create("journal")
    for request in (
        alter("journal", ("retention.ms", SET, "1"), validate_only=True),
        replace("journal", {"retention.ms": "1"}, validate_only=True),
    ):
        (result,) = (await bench.ask(request)).responses
        assert result.error_code is ErrorCode.none
    assert overrides(bench) == {}


# -- taking effect


@on_broker()
async def test_max_message_bytes_applies_from_the_next_request_on(bench: Bench) -> None:
    await bench.create("journal")
    assert (await bench.produce("journal", bytes(5000))).error_code is ErrorCode.none
    await bench.configure(TOPIC, "journal", max_message_bytes="1000")
    assert (await bench.produce("journal", bytes(5000))).error_code is ErrorCode.message_too_large
    await bench.configure(TOPIC, "journal", max_message_bytes=None)
    assert (await bench.produce("journal", bytes(5000))).error_code is ErrorCode.none


@on_broker()
async def test_message_max_bytes_of_the_broker_applies_to_topics_that_do_not_set_it(bench: Bench) -> None:
    await bench.create("journal")
    await bench.create("own", max_message_bytes="100000")
    for resource in ("", "1"):
        await bench.configure(BROKER, resource, message_max_bytes="1000")
        assert (await bench.produce("journal", bytes(5000))).error_code is ErrorCode.message_too_large
        assert (await bench.produce("own", bytes(5000))).error_code is ErrorCode.none
        await bench.configure(BROKER, resource, message_max_bytes=None)
        assert (await bench.produce("journal", bytes(5000))).error_code is ErrorCode.none


@on_broker()
async def test_compression_type_applies_at_once(bench: Bench) -> None:
    await bench.create("journal")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    for codec in ("producer", "zstd", "uncompressed", "lz4"):
        await bench.configure(TOPIC, "journal", compression_type=codec)
        await bench.produce("journal", b"a" * 500)
    batches = read_batches(hosted.log.segments.active.file.read_at(0, 100_000))
    assert [batch.header.compression for batch in batches] == [0, 4, 0, 3]


@on_broker()
async def test_log_append_time_applies_at_once_and_is_returned_to_the_producer(bench: Bench) -> None:
    await bench.create("journal")
    early_ms = bench.world.clock.now_ms() - 5000
    early = bench.batch(b"a", timestamp=early_ms)
    assert (await bench.produce("journal", records=early)).log_append_time is None
    await bench.configure(TOPIC, "journal", message_timestamp_type="LogAppendTime")
    answer = await bench.produce("journal", records=early)
    assert answer.log_append_time is not None
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    first, second = read_batches(hosted.log.segments.active.file.read_at(0, 100_000))
    assert first.records[0].timestamp == early_ms
    assert second.records[0].timestamp == int(answer.log_append_time.timestamp() * 1000)


@on_broker()
async def test_a_partition_that_is_created_after_a_config_change_has_it_too(bench: Bench) -> None:
    await bench.configure(BROKER, "", message_max_bytes="1000")
    await bench.create("later")
    assert (await bench.produce("later", bytes(5000))).error_code is ErrorCode.message_too_large


@on_broker()
async def test_connection_limits_of_the_broker_change_without_a_restart(bench: Bench) -> None:
    await bench.configure(BROKER, "", max_connections_per_ip="1")
    assert bench.broker.server.limits.max_connections_per_ip == 1
    assert await bench.configure(BROKER, "", max_connections_per_ip=None) is ErrorCode.none
    assert bench.broker.server.limits.max_connections_per_ip > 1


@on_broker()
async def test_the_rate_of_new_connections_changes_without_a_restart(bench: Bench) -> None:
    assert await bench.configure(BROKER, "", max_connection_creation_rate="0") is ErrorCode.none
    waiting = asyncio.create_task(bench.new_client("late").request(describe(BROKER, "1")))
    await asyncio.sleep(5)
    assert not waiting.done()
    assert await bench.configure(BROKER, "", max_connection_creation_rate="5") is ErrorCode.none
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize(
    ("resource_type", "name", "config", "value", "reason"),
    [
        (BROKER, "", "config.providers", "file", "config providers are not supported"),
        (BROKER, "1", "listeners", "PLAINTEXT://broker:9099", "cannot be changed while the broker runs"),
        (BROKER, "1", "sasl.enabled.mechanisms", "PLAIN", "SASL authentication is not supported"),
        (BROKER, "1", "listener.name.plaintext.ssl.keystore.location", "/key", "TLS is not supported"),
        (BROKER, "1", "principal.builder.class", "a.Builder", "SASL authentication is not supported"),
        (TOPIC, "journal", "remote.storage.enable", "true", "Tiered Storage functionality is disabled"),
        (TOPIC, "journal", "remote.log.copy.disable", "true", "tiered storage is not supported"),
    ],
)
def test_a_config_of_an_unsupported_function_is_invalid_with_the_reason(
    resource_type: int, name: str, config: str, value: str, reason: str
) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        before = dict(bench.services.metadata.image.configs)
        for request in (
            replace(name, {config: value}, resource_type),
            alter(name, (config, 0, value), resource_type=resource_type),
        ):
            (result,) = (await bench.ask(request)).responses
            assert result.error_code is ErrorCode.invalid_config
            assert reason in result.error_message
        assert bench.services.metadata.image.configs == before

    run()


@on_broker()
async def test_a_topic_with_a_config_of_an_unsupported_function_is_not_created(bench: Bench) -> None:
    with pytest.raises(AssertionError, match="tiered storage is not supported"):
        await bench.create("journal", remote_log_copy_disable="true")
    assert "journal" not in bench.services.metadata.image.topics


# -- ListConfigResources


@on_broker()
async def test_list_config_resources_lists_resources_by_type(bench: Bench) -> None:
    await bench.create("journal")
    await bench.configure(CLIENT_METRICS, "sub", metrics="*")
    await bench.configure(GROUP, "g", consumer_session_timeout_ms="50000")

    async def listed(*types: int) -> list[tuple[int, str]]:
        response = await bench.ask(ListConfigResourcesRequest(resource_types=types))
        assert response.error_code is ErrorCode.none
        return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]

    assert await listed(TOPIC) == [(TOPIC, "journal")]
    assert await listed(CLIENT_METRICS, GROUP) == [(CLIENT_METRICS, "sub"), (GROUP, "g")]
    everything = await listed()
    assert sorted(everything) == sorted(
        [(TOPIC, "journal"), (BROKER, "1"), (BROKER_LOGGER, "1"), (CLIENT_METRICS, "sub"), (GROUP, "g")]
    )
    response = await bench.ask(ListRequestV0())
    assert [resource.resource_name for resource in response.config_resources] == ["sub"]


@pytest.mark.parametrize("resource_type", [0, 99])
def test_list_config_resources_of_an_unknown_type_is_rejected(resource_type: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        response = await bench.ask(ListConfigResourcesRequest(resource_types=(TOPIC, resource_type)))
        assert (response.error_code, response.config_resources) == (ErrorCode.unsupported_version, ())

    run()
