"""Cordoned directories (KIP-1066): the controller keeps them, and places no replica on a broker without others."""

import uuid
from typing import Any

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    CreateTopics,
    FeatureUpdate,
    IncrementalAlterConfigs,
    NewPartitions,
    NewTopic,
    UpdateFeatures,
)
from ottla.core.controller.image import METADATA_VERSION, ConfigResource
from ottla.model.config.definition import ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import FeatureLevelRecord


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 has two directories, the others have one."""
    cluster = Cluster(brokers=0)
    cluster.start_broker(1, directories=2)
    cluster.start_broker(2)
    cluster.start_broker(3)
    return cluster


def cordon(cluster: Cluster, broker_id: int, *numbers: int) -> None:
    directories = cluster.image.brokers[broker_id].log_dirs
    cluster.heartbeat(broker_id, cordoned_log_dirs=tuple(directories[number] for number in numbers))


def cordoned(cluster: Cluster, broker_id: int) -> Any:
    return cluster.image.brokers[broker_id].cordoned_log_dirs


def used_brokers(cluster: Cluster, name: str, replication_factor: int) -> set[int]:
    cluster.create(name, 12, replication_factor)
    return {broker for p in cluster.image.topics[name].partitions.values() for broker in p.replicas}


def test_no_replica_is_placed_on_a_broker_whose_directories_are_all_cordoned(cluster: Cluster) -> None:
    cordon(cluster, 1, 0)
    assert used_brokers(cluster, "before", 2) == {1, 2, 3}
    cordon(cluster, 1, 0, 1)
    assert used_brokers(cluster, "cordoned", 2) == {2, 3}
    cordon(cluster, 1)
    assert cordoned(cluster, 1) == ()
    assert used_brokers(cluster, "after", 2) == {1, 2, 3}


def test_too_few_brokers_with_another_directory_are_an_invalid_replication_factor(cluster: Cluster) -> None:
    cluster.create("a", 1, 3)
    cordon(cluster, 2, 0)
    (result,) = cluster.submit(CreateTopics((NewTopic("b", cluster.new_id(), 1, 3),)))
    assert result.error.code is ErrorCode.invalid_replication_factor
    assert "only 2 broker(s) are registered and have a log directory that is not cordoned" in (
        result.error.message or ""
    )
    ((_, error),) = cluster.submit(CreatePartitions((NewPartitions("a", 2, None),)))
    assert error.code is ErrorCode.invalid_replication_factor
    for broker_id, numbers in ((1, (0, 1)), (3, (0,))):
        cordon(cluster, broker_id, *numbers)
    (result,) = cluster.submit(CreateTopics((NewTopic("b", cluster.new_id(), 1, 1),)))
    assert "All brokers that are active have only cordoned log directories." in (result.error.message or "")


def test_a_broker_keeps_its_leaderships_and_replicas(cluster: Cluster) -> None:
    cluster.create("a", 1, 3)
    before = cluster.partition()
    for broker_id in (1, 2, 3):
        cordon(cluster, broker_id, 0)
    assert cluster.partition() == before


def test_a_registration_keeps_them_until_the_broker_knows_its_configs(cluster: Cluster) -> None:
    """KAFKA-20441: a heartbeat of a broker that has not caught up has null."""
    cordon(cluster, 1, 0, 1)
    before = set(cordoned(cluster, 1))
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    assert set(cordoned(cluster, 1)) == before
    assert used_brokers(cluster, "a", 2) == {2, 3}
    assert cluster.replayed() == cluster.image


def test_a_directory_that_is_removed_is_forgotten(cluster: Cluster) -> None:
    cordon(cluster, 1, 0, 1)
    cluster.register(1, directories=1)
    assert cordoned(cluster, 1) == ()


def test_equal_directories_in_another_order_change_nothing(cluster: Cluster) -> None:
    cordon(cluster, 1, 0, 1)
    length = len(cluster.log)
    cordon(cluster, 1, 1, 0)
    assert len(cluster.log) == length


def test_directories_that_the_broker_does_not_have_are_refused(cluster: Cluster) -> None:
    before = cluster.image
    with pytest.raises(KafkaError, match="has no directory") as refused:
        cluster.heartbeat(1, cordoned_log_dirs=(uuid.UUID(int=9 << 64),))
    assert refused.value.code is ErrorCode.invalid_request
    assert cluster.image is before


def test_a_failed_directory_and_a_cordoned_one_come_with_one_heartbeat(cluster: Cluster) -> None:
    first, second = cluster.image.brokers[1].log_dirs
    cluster.heartbeat(1, offline_log_dirs=(first,), cordoned_log_dirs=(second,))
    broker = cluster.image.brokers[1]
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ((second,), (second,))
    assert used_brokers(cluster, "a", 2) == {2, 3}


def test_an_older_metadata_version_has_none() -> None:
    cluster = Cluster(brokers=0)
    cluster.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=29))
    cluster.start_broker(1)
    cordon(cluster, 1, 0)
    assert cordoned(cluster, 1) is None
    change = ConfigChange("cordoned.log.dirs", ConfigOp.SET, "*")
    alter = IncrementalAlterConfigs(((ConfigResource(ResourceType.BROKER, "1"), (change,)),))
    ((_, error),) = cluster.submit(alter)
    assert error.code is ErrorCode.invalid_config
    cluster.submit(UpdateFeatures((FeatureUpdate(METADATA_VERSION, 30),)))
    ((_, error),) = cluster.submit(alter)
    assert error.code is ErrorCode.none
    cordon(cluster, 1, 0)
    assert len(cordoned(cluster, 1)) == 1
