"""Leaders change their in-sync replicas with the right epochs, and only to replicas that are available."""

import uuid

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionResult,
    AlterPartitionTopic,
)
from ottla.core.controller.image import ELR_VERSION
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import PartitionChangeRecord


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=4)
    cluster.create("a", -1, -1, assignments=((0, (1, 2, 3)),))
    return cluster


def alter(
    cluster: Cluster,
    *isr: int,
    broker_id: int = 1,
    epochs: dict[int, int] | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    recovery: int = 0,
    index: int = 0,
    topic_id: uuid.UUID | None = None,
) -> AlterPartitionResult:
    """The epochs are added to those of the partition."""
    partition = cluster.partition()
    members = tuple((member, (epochs or {}).get(member, -1)) for member in isr)
    wanted = AlteredPartition(
        index,
        partition.leader_epoch + leader_epoch,
        members,
        recovery,
        partition.partition_epoch + partition_epoch,
    )
    topic = AlterPartitionTopic(topic_id or cluster.image.topics["a"].topic_id, (wanted,))
    epoch = cluster.image.brokers[broker_id].epoch
    (result,) = cluster.submit(AlterPartition(broker_id, epoch, (topic,)))
    return result


def test_the_isr_changes_without_a_new_leader_epoch(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    result = alter(cluster, 1, 3)
    assert result == AlterPartitionResult(topic_id, 0, ErrorCode.none, 1, 0, (1, 3), 0, 1)
    assert cluster.partition().isr == (1, 3)
    assert alter(cluster, 1, 2, 3).partition_epoch == 2


def test_an_unchanged_isr_writes_no_record(cluster: Cluster) -> None:
    before = cluster.image
    result = alter(cluster, 1, 2, 3)
    assert (result.error, result.isr, result.partition_epoch) == (ErrorCode.none, (1, 2, 3), 0)
    assert cluster.image is before


def test_the_epochs_of_the_replicas_are_checked(cluster: Cluster) -> None:
    epochs = {member: cluster.image.brokers[member].epoch for member in (1, 2)}
    assert alter(cluster, 1, 2, epochs=epochs).error is ErrorCode.none
    cluster.start_broker(2)
    assert alter(cluster, 1, 2, epochs=epochs).error is ErrorCode.ineligible_replica


def test_replicas_that_are_not_active_are_not_eligible(cluster: Cluster) -> None:
    cluster.fence(2)
    assert alter(cluster, 1, 2).error is ErrorCode.ineligible_replica
    cluster.heartbeat(2)
    cluster.create("b", -1, -1, assignments=((0, (2, 1)),))
    cluster.heartbeat(2, want_shut_down=True)
    assert cluster.image.brokers[2].in_controlled_shutdown
    assert alter(cluster, 1, 2).error is ErrorCode.ineligible_replica
    assert cluster.partition().isr == (1, 3)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"leader_epoch": 1}, ErrorCode.not_controller),
        ({"partition_epoch": 1}, ErrorCode.not_controller),
        ({"leader_epoch": -1}, ErrorCode.fenced_leader_epoch),
        ({"broker_id": 2}, ErrorCode.invalid_request),
        ({"partition_epoch": -1}, ErrorCode.invalid_update_version),
        ({"recovery": 1}, ErrorCode.invalid_request),
        ({"recovery": 7}, ErrorCode.invalid_request),
        ({"index": 5}, ErrorCode.unknown_topic_or_partition),
        ({"topic_id": uuid.UUID(int=5)}, ErrorCode.unknown_topic_id),
    ],
)
def test_a_request_with_other_epochs_or_of_another_broker_changes_nothing(
    cluster: Cluster, wanted: dict[str, int], error: ErrorCode
) -> None:
    alter(cluster, 1, 2)
    before = cluster.image
    assert alter(cluster, 1, **wanted).error is error  # type: ignore[arg-type]
    assert cluster.image is before


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 1), (1, 4), (1, 9), (1, -1)])
def test_an_isr_without_the_leader_or_with_brokers_that_have_no_replica_is_refused(
    cluster: Cluster, isr: tuple[int, ...]
) -> None:
    assert alter(cluster, *isr).error is ErrorCode.invalid_request


def test_the_same_partition_twice_in_a_request_is_refused_by_its_epoch(cluster: Cluster) -> None:
    topic_id, epoch = cluster.image.topics["a"].topic_id, cluster.image.brokers[1].epoch
    wanted = (AlteredPartition(0, 0, ((1, -1),), 0, 0), AlteredPartition(0, 0, ((1, -1), (2, -1)), 0, 0))
    results = cluster.submit(AlterPartition(1, epoch, (AlterPartitionTopic(topic_id, wanted),)))
    assert [result.error for result in results] == [ErrorCode.none, ErrorCode.invalid_update_version]


def test_a_leader_that_was_elected_uncleanly_recovers_before_others_join(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    cluster.write(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, isr=(1,), leader_recovery_state=1)
    )
    assert alter(cluster, 1, 2, recovery=1).error is ErrorCode.invalid_request
    result = alter(cluster, 1)
    assert (result.error, result.leader_recovery_state) == (ErrorCode.none, 0)
    assert alter(cluster, 1, recovery=1).error is ErrorCode.invalid_request


def test_a_leader_that_the_change_removes_must_read_the_metadata(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["a"].topic_id
    cluster.write(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1, 2), removing_replicas=(1,))
    )
    assert alter(cluster, 1, 2, 3).error is ErrorCode.new_leader_elected
    changed = cluster.partition()
    assert (changed.leader, changed.replicas, changed.isr) == (2, (2, 3), (2, 3))


def test_a_replica_that_leaves_below_min_isr_stays_eligible_until_it_returns() -> None:
    cluster = Cluster(brokers=3, features={ELR_VERSION: 1})
    configs = (("min.insync.replicas", "3"),)
    cluster.create("a", -1, -1, assignments=((0, (1, 2, 3)),), configs=configs)
    alter(cluster, 1)
    assert cluster.partition().eligible_leader_replicas == (2, 3)
    alter(cluster, 1, 3)
    assert cluster.partition().eligible_leader_replicas == (2,)
    alter(cluster, 1, 2, 3)
    assert cluster.partition().eligible_leader_replicas == ()
