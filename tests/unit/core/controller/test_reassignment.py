"""Partitions move to other replicas (KIP-455): new ones join first, old ones leave when the new ones are in sync."""

from collections.abc import Iterable

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionTopic,
    AlterReassignments,
    ApiError,
)
from ottla.core.controller.image import ELR_VERSION, UNASSIGNED_DIRECTORY
from ottla.core.controller.partition_commands import OngoingReassignment, Reassignment
from ottla.core.controller.reassignment import PARTITIONS_PER_REQUEST_MAX, ongoing_reassignments
from ottla.model.errors import ErrorCode, KafkaError


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=6)
    cluster.create("a", -1, -1, assignments=((0, (1, 2, 3)),))
    return cluster


def reassign(
    cluster: Cluster,
    replicas: Iterable[int] | None,
    *,
    topic: str = "a",
    partition: int = 0,
    allow_change: bool = True,
) -> ApiError:
    wanted = Reassignment(topic, partition, None if replicas is None else tuple(replicas))
    (result,) = cluster.submit(AlterReassignments((wanted,), allow_change))
    cluster.machine.validate()
    return result.error


def set_isr(cluster: Cluster, *isr: int) -> ErrorCode:
    """As the leader does."""
    partition = cluster.partition()
    altered = AlteredPartition(
        0, partition.leader_epoch, tuple((each, -1) for each in isr), 0, partition.partition_epoch
    )
    topic = AlterPartitionTopic(cluster.image.topics["a"].topic_id, (altered,))
    epoch = cluster.image.brokers[partition.leader].epoch
    (result,) = cluster.submit(AlterPartition(partition.leader, epoch, (topic,)))
    cluster.machine.validate()
    return result.error


def test_new_replicas_join_before_old_ones_leave(cluster: Cluster) -> None:
    before = cluster.partition()
    assert reassign(cluster, (4, 5, 1)).code is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.isr) == ((4, 5, 1, 2, 3), (1, 2, 3))
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (2, 3))
    assert (partition.leader, partition.leader_epoch) == (before.leader, before.leader_epoch)
    assert set_isr(cluster, 1, 2, 3, 4) is ErrorCode.none
    assert cluster.partition().replicas == (4, 5, 1, 2, 3)
    assert set_isr(cluster, 1, 2, 3, 4, 5) is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.isr) == ((4, 5, 1), (1, 4, 5))
    assert not partition.is_being_reassigned
    # Replicas were removed: the new leader epoch ends their fetches.
    assert (partition.leader, partition.leader_epoch) == (1, before.leader_epoch + 1)


def test_a_leader_that_is_removed_hands_over_at_the_end(cluster: Cluster) -> None:
    reassign(cluster, (4, 5, 6))
    assert cluster.partition().leader == 1
    assert set_isr(cluster, 1, 2, 3, 4, 5, 6) is ErrorCode.new_leader_elected
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 5, 6), (4, 5, 6), 4)


def test_another_order_is_complete_at_once(cluster: Cluster) -> None:
    before = cluster.partition()
    assert reassign(cluster, (3, 2, 1)).code is ErrorCode.none
    partition = cluster.partition()
    assert partition.replicas == (3, 2, 1)
    assert partition.directories == before.directories[::-1]
    assert (partition.leader, partition.leader_epoch, partition.is_being_reassigned) == (
        1,
        before.leader_epoch,
        False,
    )


def test_the_same_replicas_write_no_record(cluster: Cluster) -> None:
    before = cluster.image
    assert reassign(cluster, (1, 2, 3)).code is ErrorCode.none
    assert cluster.image is before


def test_fewer_replicas_are_complete_at_once_if_they_are_in_sync(cluster: Cluster) -> None:
    assert reassign(cluster, (1, 2)).code is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.is_being_reassigned) == ((1, 2), (1, 2), False)


def test_replicas_that_are_behind_delay_the_end(cluster: Cluster) -> None:
    set_isr(cluster, 1)
    reassign(cluster, (2, 3))
    partition = cluster.partition()
    assert (partition.replicas, partition.removing_replicas) == ((2, 3, 1), (1,))
    assert set_isr(cluster, 1, 2) is ErrorCode.none
    assert cluster.partition().is_being_reassigned
    assert set_isr(cluster, 1, 2, 3) is ErrorCode.new_leader_elected
    assert cluster.partition().replicas == (2, 3)


def test_a_new_replica_gets_the_only_directory_of_its_broker(cluster: Cluster) -> None:
    reassign(cluster, (1, 2, 4))
    directories = cluster.image.brokers[4].log_dirs
    expected = directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY
    assert cluster.partition().directory(4) == expected


def test_a_reassignment_can_be_cancelled(cluster: Cluster) -> None:
    before = cluster.partition()
    reassign(cluster, (4, 5, 6))
    set_isr(cluster, 1, 2, 3, 4)
    assert reassign(cluster, None).code is ErrorCode.none
    partition = cluster.partition()
    assert set(partition.replicas) == set(before.replicas)
    assert (partition.isr, partition.leader, partition.is_being_reassigned) == ((1, 2, 3), 1, False)
    assert reassign(cluster, None).code is ErrorCode.no_reassignment_in_progress


def test_a_cancelled_reassignment_elects_an_original_replica(cluster: Cluster) -> None:
    reassign(cluster, (4, 2, 3))
    set_isr(cluster, 1, 4)
    cluster.fence(1)
    assert cluster.partition().leader == 4
    cluster.heartbeat(1)
    set_isr(cluster, 4, 1)
    assert reassign(cluster, None).code is ErrorCode.none
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))


@pytest.mark.parametrize("elr", [0, 1])
def test_a_cancellation_that_would_lose_records_is_rejected(elr: int) -> None:
    cluster = Cluster(brokers=6, features={ELR_VERSION: elr} if elr else None)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    reassign(cluster, (4, 2))
    set_isr(cluster, 1, 4)
    cluster.fence(1)
    assert cluster.partition().isr == (4,)
    before = cluster.image
    error = reassign(cluster, None)
    assert error.code is ErrorCode.invalid_replica_assignment
    assert "a:0 because it would require an unclean leader election" in (error.message or "")
    assert cluster.image is before


def test_a_reassignment_can_be_replaced_by_another(cluster: Cluster) -> None:
    reassign(cluster, (4, 2, 3))
    assert reassign(cluster, (5, 2, 3)).code is ErrorCode.none
    partition = cluster.partition()
    assert partition.replicas == (5, 2, 3, 1, 4)
    assert (partition.adding_replicas, partition.removing_replicas) == ((5,), (1, 4))
    set_isr(cluster, 1, 2, 3, 5)
    assert cluster.partition().replicas == (5, 2, 3)


def test_a_replacement_may_keep_the_replicas_that_were_to_be_removed(cluster: Cluster) -> None:
    reassign(cluster, (4, 5, 6))
    assert reassign(cluster, (1, 2, 3, 4, 5, 6)).code is ErrorCode.none
    partition = cluster.partition()
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5, 6), ())
    set_isr(cluster, 1, 2, 3, 4, 5, 6)
    assert cluster.partition().replicas == (1, 2, 3, 4, 5, 6)


def test_the_original_replicas_as_the_target_end_a_reassignment(cluster: Cluster) -> None:
    reassign(cluster, (4, 5, 6))
    assert reassign(cluster, (1, 2, 3)).code is ErrorCode.none
    partition = cluster.partition()
    assert (partition.replicas, partition.is_being_reassigned) == ((1, 2, 3), False)


def test_the_loss_of_a_target_does_not_stop_a_partition(cluster: Cluster) -> None:
    reassign(cluster, (4, 2, 3))
    cluster.fence(4)
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, (1, 2, 3))
    assert reassign(cluster, None).code is ErrorCode.none


def test_targets_may_be_fenced(cluster: Cluster) -> None:
    cluster.fence(4)
    assert reassign(cluster, (4, 2, 3)).code is ErrorCode.none
    assert cluster.partition().adding_replicas == (4,)


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ((), "an empty replica list"),
        ((1, 99), "broker 99, but no such broker is registered"),
        ((1, 1), "the broker 1 more than once"),
    ],
)
def test_wrong_replicas_are_rejected(cluster: Cluster, replicas: tuple[int, ...], said: str) -> None:
    before = cluster.image
    error = reassign(cluster, replicas)
    assert error.code is ErrorCode.invalid_replica_assignment
    assert said in (error.message or "")
    assert cluster.image is before


def test_unknown_partitions_are_rejected_and_others_are_reassigned(cluster: Cluster) -> None:
    assert reassign(cluster, (1,), topic="nobody").code is ErrorCode.unknown_topic_or_partition
    assert reassign(cluster, (1,), partition=9).code is ErrorCode.unknown_topic_or_partition
    wanted = (Reassignment("a", 9, (1,)), Reassignment("a", 0, (4, 2, 3)))
    results = cluster.submit(AlterReassignments(wanted))
    assert [result.error.code for result in results] == [
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
    ]
    assert cluster.partition().adding_replicas == (4,)


def test_another_replication_factor_can_be_forbidden(cluster: Cluster) -> None:
    error = reassign(cluster, (1, 2), allow_change=False)
    assert error == ApiError(
        ErrorCode.invalid_replication_factor, "The replication factor is changed from 3 to 2"
    )
    assert reassign(cluster, (4, 5, 6), allow_change=False).code is ErrorCode.none
    # While it goes on, its target counts, not the replicas of both.
    assert reassign(cluster, (4, 5), allow_change=False).code is ErrorCode.invalid_replication_factor
    assert reassign(cluster, (4, 5, 3), allow_change=False).code is ErrorCode.none


def test_reassignments_are_listed(cluster: Cluster) -> None:
    cluster.create("b", -1, -1, assignments=((0, (1, 2)), (1, (1, 2))))
    reassign(cluster, (3, 2), topic="b", partition=1)
    ongoing = OngoingReassignment("b", 1, (3, 2, 1), (3,), (1,))
    assert ongoing_reassignments(cluster.image, None) == [ongoing]
    assert ongoing_reassignments(cluster.image, [("b", 0), ("b", 1), ("b", 7), ("none", 0)]) == [ongoing]
    assert ongoing_reassignments(cluster.image, [("a", 0)]) == []


def test_very_many_partitions_in_a_request_are_rejected(cluster: Cluster) -> None:
    wanted = (Reassignment("a", 0, (4,)),) * (PARTITIONS_PER_REQUEST_MAX + 1)
    with pytest.raises(KafkaError, match="10001 partitions are too many") as rejected:
        cluster.submit(AlterReassignments(wanted))
    assert rejected.value.code is ErrorCode.policy_violation
