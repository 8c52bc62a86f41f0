"""Dynamic configs are set and deleted, and lists are appended to and subtracted from (KIP-339)."""

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    NO_ERROR,
    AlterConfigs,
    ApiError,
    ConfigChange,
    ConfigOp,
    IncrementalAlterConfigs,
)
from ottla.core.controller.image import ELR_VERSION, METADATA_VERSION, ConfigResource, ResourceType
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import FeatureLevelRecord

TOPIC = ConfigResource(ResourceType.TOPIC, "a")
BROKER = ConfigResource(ResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create("a")
    return cluster


def alter(cluster: Cluster, resource: ConfigResource, *changes: tuple[str, int, str | None]) -> ApiError:
    command = IncrementalAlterConfigs(((resource, tuple(ConfigChange(*change) for change in changes)),))
    ((found, error),) = cluster.submit(command)
    assert found == resource
    return error


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (TOPIC, "retention.ms", "5"),
        (BROKER, "log.cleaner.threads", "2"),
        (ALL_BROKERS, "log.cleaner.threads", "3"),
        (ConfigResource(ResourceType.CLIENT_METRICS, "sub"), "interval.ms", "1000"),
        (ConfigResource(ResourceType.GROUP, "g"), "consumer.session.timeout.ms", "50000"),
    ],
)
def test_a_config_is_set_and_deleted_for_each_kind_of_resource(
    cluster: Cluster, resource: ConfigResource, name: str, value: str
) -> None:
    assert alter(cluster, resource, (name, ConfigOp.SET, value)) == NO_ERROR
    assert cluster.image.configs[resource] == {name: value}
    assert alter(cluster, resource, (name, ConfigOp.DELETE, None)) == NO_ERROR
    assert resource not in cluster.image.configs


def test_append_starts_from_the_default_and_adds_no_duplicates(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("cleanup.policy", ConfigOp.APPEND, "compact,delete"))
    assert cluster.image.configs[TOPIC] == {"cleanup.policy": "delete,compact"}


def test_subtract_removes_present_values_and_ignores_others(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("cleanup.policy", ConfigOp.SET, "compact,delete"))
    alter(cluster, TOPIC, ("cleanup.policy", ConfigOp.SUBTRACT, "delete,other"))
    assert cluster.image.configs[TOPIC] == {"cleanup.policy": "compact"}


def test_append_needs_a_config_of_type_list(cluster: Cluster) -> None:
    error = alter(cluster, TOPIC, ("retention.ms", ConfigOp.APPEND, "1"))
    message = "Can't APPEND to key retention.ms because its type is not LIST."
    assert error == ApiError(ErrorCode.invalid_config, message)


@pytest.mark.parametrize(
    ("resource", "change", "code", "message"),
    [
        (TOPIC, ("nope", 0, "1"), "invalid_config", "Unknown topic config name: nope"),
        (
            TOPIC,
            ("retention.ms", 0, "abc"),
            "invalid_config",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (TOPIC, ("retention.ms", 0, None), "invalid_request", "Null value not supported for : retention.ms"),
        (TOPIC, ("retention.ms", 9, "1"), "invalid_request", "Unknown operations type 9"),
        (
            ConfigResource(ResourceType.TOPIC, "zzz"),
            ("retention.ms", 0, "1"),
            "unknown_topic_or_partition",
            "The topic 'zzz' does not exist.",
        ),
        (
            ConfigResource(ResourceType.TOPIC, ""),
            ("retention.ms", 0, "1"),
            "invalid_request",
            "Default topic resources are not allowed.",
        ),
        (
            ConfigResource(ResourceType.BROKER, "9"),
            ("log.cleaner.threads", 0, "2"),
            "broker_id_not_registered",
            "No node with id 9 found.",
        ),
        (
            ConfigResource(ResourceType.BROKER, "x"),
            ("log.cleaner.threads", 0, "2"),
            "invalid_request",
            "Unable to parse broker name 'x' as a base 10 number.",
        ),
        (ConfigResource(77, "x"), ("a", 0, "2"), "invalid_request", "Unknown resource type 77"),
        (
            TOPIC,
            ("leader.replication.throttled.replicas", 0, ",".join(["1:1"] * 9000)),
            "invalid_config",
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
    ],
)
def test_a_rejected_change_gets_kafkas_message(
    cluster: Cluster, resource: ConfigResource, change: tuple[str, int, str | None], code: str, message: str
) -> None:
    before = cluster.image
    assert alter(cluster, resource, change) == ApiError(ErrorCode[code], message)
    assert cluster.image == before


def test_if_one_change_of_a_resource_is_rejected_none_is_made(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("retention.ms", ConfigOp.SET, "5"), ("nope", ConfigOp.SET, "1"))
    assert TOPIC not in cluster.image.configs


def test_a_rejected_resource_does_not_affect_the_others(cluster: Cluster) -> None:
    missing = ConfigResource(ResourceType.TOPIC, "zzz")
    change = (ConfigChange("retention.ms", ConfigOp.SET, "5"),)
    response = cluster.submit(IncrementalAlterConfigs(((missing, change), (TOPIC, change))))
    results = dict(response)
    assert results[missing].code is ErrorCode.unknown_topic_or_partition
    assert cluster.image.configs[TOPIC] == {"retention.ms": "5"}


def test_duplicate_names_and_duplicate_resources_are_rejected(cluster: Cluster) -> None:
    error = alter(cluster, TOPIC, ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    assert error == ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    change = (ConfigChange("retention.ms", ConfigOp.SET, "5"),)
    ((_, error),) = cluster.submit(IncrementalAlterConfigs(((TOPIC, change), (TOPIC, change))))
    assert error == ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    change = (ConfigChange("retention.ms", ConfigOp.SET, "5"),)
    assert cluster.submit(IncrementalAlterConfigs(((TOPIC, change),), validate_only=True)) == (
        (TOPIC, NO_ERROR),
    )
    assert cluster.image == before


def test_an_unchanged_value_is_written_again_only_for_brokers(cluster: Cluster) -> None:
    for _ in range(2):
        alter(cluster, TOPIC, ("retention.ms", ConfigOp.SET, "5"))
        alter(cluster, BROKER, ("log.cleaner.threads", ConfigOp.SET, "2"))
    written = cluster.image.offset
    alter(cluster, TOPIC, ("retention.ms", ConfigOp.SET, "5"))
    assert cluster.image.offset == written
    alter(cluster, BROKER, ("log.cleaner.threads", ConfigOp.SET, "2"))
    assert cluster.image.offset == written + 1


def test_alter_configs_replaces_all_configs_of_the_resource(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("retention.ms", ConfigOp.SET, "5"), ("segment.ms", ConfigOp.SET, "6"))
    command = AlterConfigs(((TOPIC, (("segment.ms", "7"), ("cleanup.policy", "compact"))),))
    assert cluster.submit(command) == ((TOPIC, NO_ERROR),)
    assert cluster.image.configs[TOPIC] == {"segment.ms": "7", "cleanup.policy": "compact"}


def test_alter_configs_without_configs_clears_the_resource(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("retention.ms", ConfigOp.SET, "5"))
    cluster.submit(AlterConfigs(((TOPIC, ()),)))
    assert TOPIC not in cluster.image.configs


# -- min.insync.replicas with eligible leader replicas (KIP-966): the controller and all leaders must use one value

MIN_ISR = "min.insync.replicas"
BROKER_ALTERED = ApiError(
    ErrorCode.invalid_config, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
)
DEFAULT_REMOVED = ApiError(
    ErrorCode.invalid_config, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
)


@pytest.fixture
def elr_cluster() -> Cluster:
    cluster = Cluster(features={ELR_VERSION: 1})
    cluster.create("a")
    assert alter(cluster, ALL_BROKERS, (MIN_ISR, ConfigOp.SET, "2")) == NO_ERROR
    return cluster


@pytest.mark.parametrize("change", [(MIN_ISR, ConfigOp.SET, "1"), (MIN_ISR, ConfigOp.DELETE, None)])
def test_with_elr_min_isr_of_one_broker_is_not_altered(
    elr_cluster: Cluster, change: tuple[str, int, str | None]
) -> None:
    assert alter(elr_cluster, BROKER, ("log.cleaner.threads", ConfigOp.SET, "2"), change) == BROKER_ALTERED
    assert BROKER not in elr_cluster.image.configs


def test_with_elr_alter_configs_does_not_set_min_isr_of_one_broker(elr_cluster: Cluster) -> None:
    assert elr_cluster.submit(AlterConfigs(((BROKER, ((MIN_ISR, "1"),)),))) == ((BROKER, BROKER_ALTERED),)
    assert elr_cluster.submit(AlterConfigs(((BROKER, ()),))) == ((BROKER, NO_ERROR),)


def test_with_elr_the_default_of_min_isr_is_changed_but_not_removed(elr_cluster: Cluster) -> None:
    assert alter(elr_cluster, ALL_BROKERS, (MIN_ISR, ConfigOp.DELETE, None)) == DEFAULT_REMOVED
    others = AlterConfigs(((ALL_BROKERS, (("log.cleaner.threads", "2"),)),))
    assert elr_cluster.submit(others) == ((ALL_BROKERS, DEFAULT_REMOVED),)
    assert elr_cluster.image.configs[ALL_BROKERS] == {MIN_ISR: "2"}
    assert elr_cluster.submit(AlterConfigs(((ALL_BROKERS, ((MIN_ISR, "3"),)),))) == ((ALL_BROKERS, NO_ERROR),)
    assert elr_cluster.image.configs[ALL_BROKERS] == {MIN_ISR: "3"}


def test_with_elr_min_isr_of_a_topic_is_set_and_deleted(elr_cluster: Cluster) -> None:
    assert alter(elr_cluster, TOPIC, (MIN_ISR, ConfigOp.SET, "1")) == NO_ERROR
    assert alter(elr_cluster, TOPIC, (MIN_ISR, ConfigOp.DELETE, None)) == NO_ERROR


def test_without_elr_min_isr_of_brokers_is_set_and_deleted(cluster: Cluster) -> None:
    for resource in (BROKER, ALL_BROKERS):
        assert alter(cluster, resource, (MIN_ISR, ConfigOp.SET, "1")) == NO_ERROR
        assert alter(cluster, resource, (MIN_ISR, ConfigOp.DELETE, None)) == NO_ERROR


def test_min_isr_of_one_broker_is_not_altered_before_an_upgrade_of_metadata_that_activates_elr() -> None:
    cluster = Cluster(features={ELR_VERSION: 1})
    cluster.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=22))
    assert not cluster.image.has_elr
    assert alter(cluster, BROKER, (MIN_ISR, ConfigOp.SET, "1")) == BROKER_ALTERED
