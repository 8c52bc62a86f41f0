"""DescribeCluster, DescribeQuorum, UpdateFeatures, DescribeLogDirs and client telemetry over the wire."""

import asyncio
import gzip
from typing import Any
from uuid import UUID

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.update_features.v0.request import FeatureUpdateKey as FeatureUpdateKeyV0
from kio.schema.update_features.v0.request import UpdateFeaturesRequest as UpdateFeaturesRequestV0
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.broker.broker_bench import HOST, PORT, Bench, on_broker

from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_the_cluster_and_its_brokers(version: int) -> None:
    @on_broker(broker_rack="r1")
    async def run(bench: Bench) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=False
        )
        response = await bench.ask(request, version)
        assert (response.error_code, response.cluster_id) == (ErrorCode.none, bench.services.cluster_id)
        assert response.controller_id == 1
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, HOST, PORT, "r1")
        assert response.cluster_authorized_operations > 0

    run()


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(2, ErrorCode.mismatched_endpoint_type), (7, ErrorCode.unsupported_endpoint_type)],
)
def test_describe_cluster_of_other_end_points_is_rejected(endpoint_type: int, expected: ErrorCode) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
            include_fenced_brokers=False,
        )
        response = await bench.ask(request)
        assert (response.error_code, response.brokers) == (expected, ())
        assert response.error_message
        assert response.cluster_authorized_operations == -(2**31)

    run()


def quorum_request(topic: str, *partitions: int) -> DescribeQuorumRequest:
    wanted = tuple(PartitionData(partition_index=index) for index in partitions)
    return DescribeQuorumRequest(topics=(TopicData(topic_name=topic, partitions=wanted),))


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum_names_the_leader_and_the_voters(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        response = await bench.ask(quorum_request("__cluster_metadata", 0), version)
        (partition,) = response.topics[0].partitions
        assert (response.error_code, partition.leader_id) == (ErrorCode.none, 1)
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        before = partition.high_watermark
        await bench.create("journal")
        (partition,) = (
            (await bench.ask(quorum_request("__cluster_metadata", 0), version)).topics[0].partitions
        )
        assert partition.high_watermark > before

    run()


@on_broker()
async def test_describe_quorum_of_anything_else_is_rejected(bench: Bench) -> None:
    for request in (
        quorum_request("journal", 0),
        quorum_request("__cluster_metadata", 1),
        quorum_request("__cluster_metadata", 0, 1),
        DescribeQuorumRequest(topics=()),
    ):
        response = await bench.ask(request)
        assert response.error_code is ErrorCode.none
        errors = [part.error_code for topic in response.topics for part in topic.partitions]
        expected = [
            ErrorCode.unknown_topic_or_partition for topic in request.topics for _ in topic.partitions
        ]
        assert errors == expected


def feature_request(feature: str, level: int, **options: Any) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(
        feature=feature, max_version_level=level, upgrade_type=options.get("upgrade_type", 1)
    )
    return UpdateFeaturesRequest(feature_updates=(update,), validate_only=options.get("validate_only", False))


@pytest.mark.parametrize("version", range(3))
def test_update_features_rejects_what_is_not_supported(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        before = dict(bench.services.metadata.image.features)
        for request in (feature_request("no.such", 1), feature_request("metadata.version", 9999)):
            response = await bench.ask(request, version)
            assert response.error_code is not ErrorCode.none
            assert response.error_message.startswith(
                "The update failed for all features since the following feature had an error: Invalid update version"
            )
            if version < 2:
                assert response.results == ()
        assert bench.services.metadata.image.features == before

    run()


@pytest.mark.parametrize("version", range(2))
def test_update_features_of_older_versions_have_a_result_for_each_feature(version: int) -> None:
    """A client waits for each of them."""

    @on_broker()
    async def run(bench: Bench) -> None:
        features = bench.services.metadata.image.features
        names = ("metadata.version", "group.version")
        updates = tuple(
            FeatureUpdateKey(feature=name, max_version_level=features[name], upgrade_type=1) for name in names
        )
        response = await bench.ask(UpdateFeaturesRequest(feature_updates=updates), version)
        assert response.error_code is ErrorCode.none
        assert [(result.feature, result.error_code) for result in response.results] == [
            (name, ErrorCode.none) for name in names
        ]

    run()


@on_broker()
async def test_update_features_of_the_oldest_version_knows_upgrades_and_safe_downgrades(bench: Bench) -> None:
    level = bench.services.metadata.image.features["metadata.version"]

    def request(wanted: int, *, allow_downgrade: bool) -> UpdateFeaturesRequestV0:
        update = FeatureUpdateKeyV0(
            feature="metadata.version", max_version_level=wanted, allow_downgrade=allow_downgrade
        )
        return UpdateFeaturesRequestV0(feature_updates=(update,))

    assert (await bench.ask(request(level, allow_downgrade=False))).error_code is ErrorCode.none
    rejected = await bench.ask(request(level - 1, allow_downgrade=False))
    assert rejected.error_code is not ErrorCode.none
    assert bench.services.metadata.image.features["metadata.version"] == level


@on_broker()
async def test_update_features_to_the_present_level_changes_nothing(bench: Bench) -> None:
    level = bench.services.metadata.image.features["metadata.version"]
    assert (await bench.ask(feature_request("metadata.version", level))).error_code is ErrorCode.none
    assert bench.services.metadata.image.features["metadata.version"] == level


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_returns_sizes_by_directory(version: int) -> None:
    @on_broker(directories=("/one", "/two"))
    async def run(bench: Bench) -> None:
        await bench.create("journal", 4)
        await bench.produce("journal", bytes(1000), partition=2)
        response = await bench.ask(DescribeLogDirsRequest(topics=None), version)
        assert sorted(result.log_dir for result in response.results) == ["/one", "/two"]
        found = {
            partition.partition_index: partition.partition_size
            for result in response.results
            for topic in result.topics
            for partition in topic.partitions
        }
        assert set(found) == {0, 1, 2, 3}
        assert [index for index, size in found.items() if size > 0] == [2]
        if version >= 4:
            assert all(result.total_bytes > result.usable_bytes > 0 for result in response.results)
        wanted = (DescribableLogDirTopic(topic="journal", partitions=(1, 9)),)
        response = await bench.ask(DescribeLogDirsRequest(topics=wanted), version)
        indexes = [p.partition_index for r in response.results for t in r.topics for p in t.partitions]
        assert indexes == [1]

    run()


# -- telemetry (KIP-714)


def push(instance: UUID | None, subscription_id: int, metrics: bytes = b"", **options: Any) -> Any:
    return PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=subscription_id,
        terminating=options.get("terminating", False),
        compression_type=options.get("compression_type", 0),
        metrics=metrics,
    )


async def pushed(bench: Bench, request: Any) -> ErrorCode:
    code: ErrorCode = (await bench.ask(request)).error_code
    return code


async def subscribe(bench: Bench, instance: UUID | None = None) -> Any:
    return await bench.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance))


@on_broker()
async def test_a_client_subscribes_to_telemetry_pushes_in_time_and_terminates(bench: Bench) -> None:
    await bench.configure(
        ResourceType.CLIENT_METRICS, "all", metrics="org.apache.kafka.producer.", interval_ms="10000"
    )
    answer = await subscribe(bench)
    assert answer.error_code is ErrorCode.none
    assert answer.requested_metrics == ("org.apache.kafka.producer.",)
    assert answer.push_interval.total_seconds() == 10
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert await pushed(bench, push(instance, subscription, b"m")) is ErrorCode.none
    assert await pushed(bench, push(instance, subscription, b"m")) is ErrorCode.throttling_quota_exceeded
    await asyncio.sleep(10)
    packed = gzip.compress(b"metrics" * 100)
    assert await pushed(bench, push(instance, subscription, packed, compression_type=1)) is ErrorCode.none
    assert await pushed(bench, push(instance, subscription, terminating=True)) is ErrorCode.none
    await asyncio.sleep(10)
    assert await pushed(bench, push(instance, subscription)) is ErrorCode.invalid_request


@on_broker()
async def test_a_client_that_subscribes_to_telemetry_too_often_is_throttled(bench: Bench) -> None:
    await bench.configure(ResourceType.CLIENT_METRICS, "all", metrics="a.", interval_ms="10000")
    answer = await subscribe(bench)
    request = push(answer.client_instance_id, answer.subscription_id, b"m")
    assert await pushed(bench, request) is ErrorCode.none
    again = await subscribe(bench, answer.client_instance_id)
    assert again.error_code is ErrorCode.throttling_quota_exceeded
    assert again.requested_metrics == ()
    assert await pushed(bench, request) is ErrorCode.throttling_quota_exceeded
    await asyncio.sleep(10)
    assert (await subscribe(bench, answer.client_instance_id)).error_code is ErrorCode.none


@on_broker()
async def test_a_changed_telemetry_subscription_is_reported_with_the_next_push(bench: Bench) -> None:
    await bench.configure(ResourceType.CLIENT_METRICS, "all", metrics="a.", interval_ms="1000")
    answer = await subscribe(bench)
    await bench.configure(ResourceType.CLIENT_METRICS, "all", metrics="b.")
    request = push(answer.client_instance_id, answer.subscription_id, b"m")
    assert await pushed(bench, request) is ErrorCode.unknown_subscription_id
    again = await subscribe(bench, answer.client_instance_id)
    assert again.requested_metrics == ("b.",)
    request = push(answer.client_instance_id, again.subscription_id, b"m")
    assert await pushed(bench, request) is ErrorCode.none


@on_broker(telemetry_max_bytes="1000")
async def test_an_invalid_telemetry_push_is_rejected(bench: Bench) -> None:
    await bench.configure(ResourceType.CLIENT_METRICS, "all", metrics="*", interval_ms="1000")
    answer = await subscribe(bench)
    assert answer.requested_metrics == ("",)
    assert answer.telemetry_max_bytes == 1000
    instance, subscription = answer.client_instance_id, answer.subscription_id
    for request, expected in (
        (push(None, subscription), ErrorCode.invalid_request),
        (push(UUID(int=5), subscription + 1), ErrorCode.unknown_subscription_id),
        (push(instance, subscription + 1), ErrorCode.unknown_subscription_id),
        (push(instance, subscription, compression_type=9), ErrorCode.unsupported_compression_type),
        (push(instance, subscription, bytes(1001)), ErrorCode.telemetry_too_large),
        (push(instance, subscription, b"no gzip", compression_type=1), ErrorCode.invalid_record),
    ):
        assert await pushed(bench, request) is expected
        await asyncio.sleep(2)
    bomb = gzip.compress(bytes(900_000))
    assert len(bomb) < 1000
    request = push(instance, subscription, bomb, compression_type=1)
    assert await pushed(bench, request) is ErrorCode.invalid_record


@on_broker()
async def test_a_telemetry_subscription_applies_only_to_matching_clients(bench: Bench) -> None:
    await bench.configure(
        ResourceType.CLIENT_METRICS, "some", metrics="a.", match="client_id=other.*", interval_ms="1000"
    )
    assert (await subscribe(bench)).requested_metrics == ()
    bench.client = bench.new_client("other-1")
    assert (await subscribe(bench)).requested_metrics == ("a.",)
