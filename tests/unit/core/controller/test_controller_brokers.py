"""Leadership follows the brokers that are available, and each change of a leader has a new leader epoch."""

import uuid
from typing import Any

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AllocateProducerIds,
    FenceBroker,
    ProducerIdBlock,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.core.controller.image import PartitionImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import (
    NO_LEADER,
    FeatureRange,
    PartitionChangeRecord,
)


def partition(cluster: Cluster, topic: str = "a") -> PartitionImage:
    found = cluster.image.partition(topic, 0)
    assert found is not None
    return found


def fence(cluster: Cluster, broker_id: int) -> None:
    cluster.submit(FenceBroker(broker_id, cluster.image.brokers[broker_id].epoch))


def test_a_broker_is_fenced_until_it_requests_unfencing() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1)
    assert cluster.image.brokers[1].fenced
    cluster.submit(UnfenceBroker(1, epoch))
    assert cluster.image.brokers[1].is_active


def test_each_registration_has_a_higher_broker_epoch() -> None:
    cluster = Cluster(brokers=0)
    epochs = [cluster.start_broker(1) for _ in range(3)]
    assert epochs == sorted(set(epochs))


def test_a_restart_raises_the_leader_epoch_of_the_brokers_partitions() -> None:
    cluster = Cluster()
    cluster.create("a")
    cluster.start_broker(1)
    assert partition(cluster) == partition(cluster)._replace(leader=1, leader_epoch=1, isr=(1,))
    cluster.start_broker(1)
    assert partition(cluster).leader_epoch == 2


def test_after_a_restart_another_in_sync_broker_leads() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.register(1)
    assert (partition(cluster).leader, partition(cluster).isr, partition(cluster).leader_epoch) == (
        2,
        (2,),
        1,
    )
    cluster.submit(UnfenceBroker(1, cluster.image.brokers[1].epoch))
    assert partition(cluster).leader == 2


def test_fencing_moves_leadership_to_the_next_replica_in_sync() -> None:
    cluster = Cluster(brokers=3)
    cluster.create("a", -1, -1, assignments=((0, (1, 2, 3)),))
    fence(cluster, 1)
    assert (partition(cluster).leader, partition(cluster).isr, partition(cluster).leader_epoch) == (
        2,
        (2, 3),
        1,
    )


def test_a_follower_that_is_fenced_leaves_the_isr_in_the_same_leader_epoch() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    fence(cluster, 2)
    assert (partition(cluster).leader, partition(cluster).isr, partition(cluster).leader_epoch) == (
        1,
        (1,),
        0,
    )
    assert partition(cluster).partition_epoch == 1


def test_the_last_replica_in_sync_stays_in_the_isr_without_leading() -> None:
    cluster = Cluster()
    cluster.create("a")
    fence(cluster, 1)
    assert (partition(cluster).leader, partition(cluster).isr) == (NO_LEADER, (1,))
    cluster.start_broker(1)
    assert (partition(cluster).leader, partition(cluster).leader_epoch) == (1, 2)


def test_fencing_twice_changes_nothing() -> None:
    cluster = Cluster()
    fence(cluster, 1)
    before = cluster.image
    fence(cluster, 1)
    assert cluster.image is before


def test_an_eligible_leader_replica_is_elected_and_the_list_is_cleared() -> None:
    """KIP-966: the state that Apache Kafka writes when the last in-sync replica stops cleanly."""
    cluster = Cluster()
    cluster.create("a")
    topic_id = cluster.image.topics["a"].topic_id
    cluster.write(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id,
            isr=(),
            leader=NO_LEADER,
            eligible_leader_replicas=(1,),
            last_known_elr=(1,),
        )
    )
    cluster.start_broker(1)
    changed = partition(cluster)
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas, changed.last_known_elr) == (
        1,
        (1,),
        (),
        (),
    )


def test_unregistering_removes_the_broker_but_not_its_replicas() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.submit(UnregisterBroker(1))
    assert list(cluster.image.brokers) == [2]
    assert (partition(cluster).leader, partition(cluster).replicas) == (2, (1, 2))
    with pytest.raises(KafkaError, match="Broker ID 1 is not currently registered"):
        cluster.submit(UnregisterBroker(1))


def test_a_request_of_an_earlier_broker_process_is_rejected_by_its_epoch() -> None:
    cluster = Cluster()
    old = cluster.image.brokers[1].epoch
    cluster.start_broker(1)
    commands: list[Any] = [UnfenceBroker(1, old), FenceBroker(1, old), AllocateProducerIds(1, old)]
    for command in commands:
        with pytest.raises(KafkaError) as rejected:
            cluster.submit(command)
        assert rejected.value.code is ErrorCode.stale_broker_epoch


def test_an_unknown_broker_is_rejected() -> None:
    with pytest.raises(KafkaError) as rejected:
        Cluster().submit(UnfenceBroker(7, 0))
    assert rejected.value.code is ErrorCode.broker_id_not_registered


def test_a_broker_that_does_not_support_the_metadata_version_is_rejected() -> None:
    cluster = Cluster(brokers=0)
    old = FeatureRange(name="metadata.version", min_supported_version=1, max_supported_version=7)
    with pytest.raises(KafkaError, match="does not support finalized version 30 of"):
        cluster.submit(RegisterBroker(1, uuid.UUID(int=5), (), (old,), ()))


def test_producer_ids_come_in_blocks_of_a_thousand_that_never_overlap() -> None:
    cluster = Cluster(brokers=2)
    command = AllocateProducerIds(1, cluster.image.brokers[1].epoch)
    assert cluster.submit(command) == ProducerIdBlock(0, 1000)
    assert cluster.submit(command) == ProducerIdBlock(1000, 1000)
    assert cluster.submit(AllocateProducerIds(2, cluster.image.brokers[2].epoch)) == ProducerIdBlock(
        2000, 1000
    )
