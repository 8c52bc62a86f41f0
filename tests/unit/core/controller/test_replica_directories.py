"""Brokers with several directories say where their replicas are (KIP-858)."""

import uuid
from dataclasses import replace

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import AssignReplicasToDirs
from ottla.core.controller.image import ELR_VERSION, LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from ottla.model.errors import ErrorCode
from ottla.protocol.metadata_records.records import NO_LEADER


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=0)
    cluster.start_broker(1, directories=2)
    cluster.start_broker(2)
    cluster.start_broker(3)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)), (1, (2, 3))))
    cluster.create("b", -1, -1, assignments=((0, (1,)),))
    return cluster


def assign(
    cluster: Cluster, directory: uuid.UUID, *partitions: int, topic_id: uuid.UUID | None = None
) -> list[ErrorCode]:
    topics = ((topic_id or cluster.image.topics["a"].topic_id, partitions),)
    epoch = cluster.image.brokers[1].epoch
    results = cluster.submit(AssignReplicasToDirs(1, epoch, ((directory, topics),)))
    assert [(each.directory_id, each.partition) for each in results] == [(directory, p) for p in partitions]
    return [each.error for each in results]


def directory(cluster: Cluster, number: int) -> uuid.UUID:
    found = cluster.image.brokers[1].log_dirs[number]
    assert found is not None
    return found


def test_a_new_replica_on_a_broker_with_several_directories_is_unassigned(cluster: Cluster) -> None:
    assert cluster.partition().directories == (UNASSIGNED_DIRECTORY, cluster.image.brokers[2].log_dirs[0])
    assert cluster.partition().leader == 1


def test_the_directory_of_a_replica_is_kept(cluster: Cluster) -> None:
    wanted = directory(cluster, 1)
    assert assign(cluster, wanted, 0) == [ErrorCode.none]
    assert cluster.partition().directories == (wanted, cluster.image.brokers[2].log_dirs[0])
    assert (cluster.partition().leader_epoch, cluster.partition().partition_epoch) == (0, 1)
    before = cluster.image
    assign(cluster, wanted, 0)
    assert cluster.image is before


def test_replicas_that_the_broker_does_not_have_are_refused(cluster: Cluster) -> None:
    before = cluster.image
    wanted = directory(cluster, 0)
    assert assign(cluster, wanted, 1, 9) == [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert assign(cluster, wanted, 0, topic_id=uuid.UUID(int=4)) == [ErrorCode.unknown_topic_id]
    assert cluster.image is before


@pytest.mark.parametrize("offline", [LOST_DIRECTORY, uuid.UUID(int=77 << 80)])
def test_a_replica_in_a_directory_that_is_not_online_loses_its_leadership(
    cluster: Cluster, offline: uuid.UUID
) -> None:
    assert assign(cluster, offline, 0) == [ErrorCode.none]
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_the_only_replica_leads_again_when_it_is_in_an_online_directory(cluster: Cluster) -> None:
    topic_id = cluster.image.topics["b"].topic_id
    assign(cluster, LOST_DIRECTORY, 0, topic_id=topic_id)
    assert cluster.partition("b").leader == NO_LEADER
    assign(cluster, directory(cluster, 0), 0, topic_id=topic_id)
    assert cluster.partition("b").leader == 1


def test_a_replica_that_was_created_again_in_another_directory_is_not_eligible() -> None:
    """Broker 1 has the only in-sync copy in a directory that fails. Its operator removes the directory from log.dirs,
    and the broker creates an empty replica in another one.
    """
    cluster = Cluster(brokers=0, features={ELR_VERSION: 1})
    cluster.start_broker(1, directories=2)
    cluster.start_broker(2)
    cluster.fence(2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    failed, other = directory(cluster, 0), directory(cluster, 1)
    assign(cluster, failed, 0)
    assert cluster.partition().isr == (1,)
    epoch = cluster.image.brokers[1].epoch
    cluster.heartbeat(1, offline_log_dirs=(failed,))
    assert (cluster.partition().leader, cluster.partition().eligible_leader_replicas) == (NO_LEADER, (1,))
    cluster.submit(
        replace(cluster.registration(1, previous_broker_epoch=epoch, is_local=True), log_dirs=(other,))
    )
    cluster.heartbeat(1)
    assign(cluster, other, 0)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, (), ())
    assert partition.last_known_elr == ()


def test_a_replica_that_moves_between_directories_stays_in_the_isr(cluster: Cluster) -> None:
    assign(cluster, directory(cluster, 0), 0)
    assign(cluster, directory(cluster, 1), 0)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1, 2))
