"""A broker registers each of its processes; a second one beside it, and the disks of another broker, are refused."""

import uuid
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.commands import (
    AllocateProducerIds,
    AssignReplicasToDirs,
    BrokerDisconnected,
    BrokerHeartbeat,
    ControllerCommand,
    ElectLeaders,
    FenceStaleBrokers,
    ProducerIdBlock,
    RegisterController,
    UnregisterBroker,
    WriteNoOp,
)
from ottla.core.controller.commands import AlterPartition as Alter
from ottla.core.controller.image import ELR_VERSION
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import decode_record
from ottla.protocol.metadata_records.records import (
    NO_LEADER,
    FeatureLevelRecord,
    FeatureRange,
    NoOpRecord,
    RegisterBrokerRecord,
)


def rejection(cluster: Cluster, command: ControllerCommand[Any]) -> KafkaError:
    before = cluster.image
    with pytest.raises(KafkaError) as rejected:
        cluster.submit(command)
    assert cluster.image is before
    return rejected.value


def test_a_broker_is_fenced_until_its_first_heartbeat() -> None:
    cluster = Cluster(brokers=0)
    cluster.register(1)
    assert cluster.image.brokers[1].fenced
    cluster.heartbeat(1)
    assert cluster.image.brokers[1].is_active


def test_the_broker_epoch_is_the_offset_of_the_registration_and_grows_with_each() -> None:
    cluster = Cluster(brokers=0)
    epochs = []
    for _ in range(3):
        epochs.append(cluster.start_broker(1))
        cluster.create(f"topic{len(epochs)}")
    assert epochs == sorted(set(epochs))
    assert all(isinstance(decode_record(cluster.log[epoch]), RegisterBrokerRecord) for epoch in epochs)


def test_a_second_process_is_refused_while_the_session_of_the_first_is_valid() -> None:
    cluster = Cluster()
    error = rejection(cluster, cluster.registration(1))
    assert error.code is ErrorCode.duplicate_broker_registration
    assert "host1:9092" in error.message
    assert "set another node.id" in error.message


def test_a_new_process_may_register_when_the_session_of_the_old_one_has_expired() -> None:
    cluster = Cluster()
    old = cluster.image.brokers[1].epoch
    cluster.now_ms += cluster.settings.session_timeout_ms
    assert cluster.submit(cluster.registration(1)) > old


def test_a_new_process_may_register_when_the_old_one_is_fenced_and_silent() -> None:
    cluster = Cluster()
    cluster.now_ms += cluster.settings.session_timeout_ms
    cluster.submit(FenceStaleBrokers())
    assert cluster.image.brokers[1].fenced
    cluster.submit(cluster.registration(1))
    assert cluster.image.brokers[1].fenced


def test_a_second_process_is_refused_while_the_first_is_fenced_and_sends_heartbeats() -> None:
    """It opens its logs. Two supervised processes would displace each other for ever, each unclean (KIP-966)."""
    cluster = Cluster(brokers=0)
    cluster.submit(cluster.registration(1))
    for _ in range(3):
        error = rejection(cluster, cluster.registration(1))
        assert error.code is ErrorCode.duplicate_broker_registration
        cluster.heartbeat(1, want_fence=True)
        assert cluster.image.brokers[1].fenced
        cluster.now_ms += cluster.settings.session_timeout_ms - 1
    assert cluster.machine.next_timeout_ms() is None
    cluster.now_ms += 1
    cluster.submit(cluster.registration(1))


def test_a_broker_that_died_while_it_was_fenced_may_register_soon_after_its_connection_was_closed() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.submit(cluster.registration(1))
    cluster.heartbeat(1, want_fence=True, connection="old")
    cluster.heartbeat(1, want_fence=True, connection="new")
    cluster.submit(BrokerDisconnected(1, epoch, "old"))
    cluster.now_ms += cluster.settings.disconnect_grace_ms
    rejection(cluster, cluster.registration(1))
    cluster.submit(BrokerDisconnected(1, epoch, "new"))
    cluster.now_ms += cluster.settings.disconnect_grace_ms - 1
    rejection(cluster, cluster.registration(1))
    cluster.now_ms += 1
    cluster.submit(cluster.registration(1))


def test_a_broker_that_died_before_its_first_heartbeat_may_register_soon() -> None:
    cluster = Cluster(brokers=0)
    cluster.submit(cluster.registration(1))
    cluster.now_ms += cluster.settings.disconnect_grace_ms
    cluster.submit(cluster.registration(1))


def test_a_broker_that_has_shut_down_may_register_at_once() -> None:
    cluster = Cluster()
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.submit(cluster.registration(1))
    cluster.heartbeat(1, want_fence=True)
    assert cluster.heartbeat(1, want_fence=True, want_shut_down=True).should_shut_down
    cluster.submit(cluster.registration(1))


def test_a_new_process_may_register_when_the_old_one_was_shutting_down() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.heartbeat(1, want_shut_down=True)
    assert not cluster.image.brokers[1].fenced
    cluster.submit(cluster.registration(1))
    assert not cluster.image.brokers[1].in_controlled_shutdown


def test_a_broker_beside_the_active_controller_need_not_wait_for_the_session_of_its_earlier_process() -> None:
    cluster = Cluster()
    cluster.submit(replace(cluster.registration(1), is_local=True))
    assert cluster.image.brokers[1].fenced


def test_a_process_that_registers_again_keeps_its_epoch_and_stays_unfenced() -> None:
    cluster = Cluster(brokers=0)
    first = cluster.registration(1)
    epoch = cluster.submit(first)
    cluster.heartbeat(1)
    assert cluster.submit(replace(first, rack="r2")) == epoch
    assert (cluster.image.brokers[1].rack, cluster.image.brokers[1].fenced) == ("r2", False)


def test_a_process_that_registers_again_with_fewer_directories_loses_the_replicas_in_the_others() -> None:
    cluster = Cluster(brokers=0)
    first = cluster.registration(1, directories=2)
    cluster.submit(first)
    cluster.heartbeat(1)
    cluster.create("a")
    topic_id = cluster.image.topics["a"].topic_id
    assigned = ((first.log_dirs[0], ((topic_id, (0,)),)),)
    cluster.submit(AssignReplicasToDirs(1, cluster.image.brokers[1].epoch, assigned))
    cluster.submit(replace(first, log_dirs=first.log_dirs[1:]))
    assert cluster.partition().leader == NO_LEADER
    cluster.submit(first)
    assert cluster.partition().leader == 1


@pytest.mark.parametrize(
    ("log_dirs", "reason"),
    [
        ((), "No directories specified"),
        ((uuid.UUID(int=99),), "Reserved directory ID"),
        ((uuid.UUID(int=7 << 80), uuid.UUID(int=7 << 80)), "Duplicate directory ID"),
    ],
)
def test_directories_that_cannot_be_told_apart_are_refused(
    log_dirs: tuple[uuid.UUID, ...], reason: str
) -> None:
    cluster = Cluster()
    error = rejection(cluster, replace(cluster.registration(2), log_dirs=log_dirs))
    assert error.code is ErrorCode.invalid_registration
    assert reason in error.message


def test_the_directory_of_another_broker_is_refused() -> None:
    cluster = Cluster()
    taken = tuple(each for each in cluster.image.brokers[1].log_dirs if each is not None)
    error = rejection(cluster, replace(cluster.registration(2), log_dirs=taken))
    assert error.code is ErrorCode.invalid_registration
    assert f"Broker 1 is already registered with directory {taken[0]}" in error.message


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (
            (FeatureRange(name="metadata.version", min_supported_version=1, max_supported_version=7),),
            "does not support finalized version 30 of metadata.version. It wants a version between 1 and 7",
        ),
        ((), "does not support finalized version 30 of metadata.version"),
        (
            (FeatureRange(name="metadata.version", min_supported_version=1, max_supported_version=30),),
            "does not support finalized version 1 of group.version. It wants a version between 0 and 0",
        ),
        (
            (
                FeatureRange(name="metadata.version", min_supported_version=1, max_supported_version=30),
                FeatureRange(name="group.version", min_supported_version=0, max_supported_version=1),
                FeatureRange(name="new.version", min_supported_version=1, max_supported_version=2),
            ),
            "does not support finalized version 0 of new.version",
        ),
    ],
)
def test_a_broker_that_does_not_support_a_finalized_feature_is_refused(
    features: tuple[FeatureRange, ...], reason: str
) -> None:
    cluster = Cluster(features={"group.version": 1})
    error = rejection(cluster, replace(cluster.registration(2), features=features))
    assert error.code is ErrorCode.unsupported_version
    assert reason in error.message


def test_a_broker_need_not_name_a_feature_that_is_not_finalized() -> None:
    """KAFKA-17011: a registration below version 4 cannot name features whose lowest version is 0, as kraft.version."""
    cluster = Cluster()
    only = FeatureRange(name="metadata.version", min_supported_version=17, max_supported_version=30)
    cluster.submit(replace(cluster.registration(2), features=(only,)))
    assert cluster.image.brokers[2].features == (only,)


def test_a_feature_that_the_controller_does_not_support_either_is_not_demanded() -> None:
    """The log of a default cluster of Apache Kafka has share.version 1."""
    cluster = Cluster(features={"share.version": 1})
    assert cluster.image.brokers[1].is_active


def test_after_a_restart_another_in_sync_broker_leads() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.register(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_epoch) == (2, (2,), 1)
    cluster.heartbeat(1)
    assert cluster.partition().leader == 2


def test_a_partition_without_another_replica_has_no_leader_until_the_new_process_serves() -> None:
    cluster = Cluster()
    cluster.create("a")
    cluster.register(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_epoch) == (NO_LEADER, (1,), 1)
    cluster.heartbeat(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_epoch) == (1, (1,), 2)


def test_a_broker_that_stopped_cleanly_stays_an_eligible_leader() -> None:
    cluster = Cluster(features={ELR_VERSION: 1})
    cluster.create("a")
    last = cluster.image.brokers[1].epoch
    cluster.register(1, previous_broker_epoch=last)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (NO_LEADER, (), (1,))
    cluster.heartbeat(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas) == (1, (1,), ())
    assert (changed.last_known_elr, changed.leader_recovery_state) == ((), 0)


def test_a_broker_that_did_not_stop_cleanly_leaves_the_isr_and_the_eligible_leaders() -> None:
    cluster = Cluster(brokers=3, features={ELR_VERSION: 1})
    configs = (("min.insync.replicas", "3"),)
    cluster.create("a", -1, -1, assignments=((0, (1, 2, 3)),), configs=configs)
    cluster.fence(2)
    assert cluster.partition().eligible_leader_replicas == (2,)
    cluster.register(2, previous_broker_epoch=-1)
    assert cluster.partition().eligible_leader_replicas == ()
    cluster.register(3, previous_broker_epoch=-1)
    changed = cluster.partition()
    assert (changed.isr, changed.eligible_leader_replicas) == ((1,), ())


def test_without_eligible_replicas_the_last_leader_is_elected_and_has_to_recover() -> None:
    cluster = Cluster(brokers=2, features={ELR_VERSION: 1})
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.fence(2)
    cluster.register(1, previous_broker_epoch=-1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.last_known_elr) == (NO_LEADER, (), (1,))
    cluster.heartbeat(2)
    assert cluster.partition().leader == NO_LEADER
    cluster.heartbeat(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (1, (1,), 1)


def test_a_running_broker_is_not_unregistered() -> None:
    """It would have to stop: no request of a client may do that."""
    cluster = Cluster(brokers=2)
    before = cluster.image
    rejected = rejection(cluster, UnregisterBroker(1))
    assert rejected.code is ErrorCode.invalid_request
    assert "Broker 1 is running. Stop it before you unregister it" in rejected.message
    assert cluster.image is before


def test_unregistering_removes_the_broker_but_not_its_replicas() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.fence(1)
    cluster.submit(UnregisterBroker(1))
    assert list(cluster.image.brokers) == [2]
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.replicas) == (2, (2,), (1, 2))
    assert "Broker ID 1 is not currently registered" in rejection(cluster, UnregisterBroker(1)).message
    cluster.now_ms += 100_000
    cluster.submit(FenceStaleBrokers())
    assert list(cluster.image.brokers) == [2]


def test_commands_of_an_earlier_process_are_rejected_by_its_epoch_and_change_nothing() -> None:
    cluster = Cluster()
    cluster.create("a")
    old = cluster.image.brokers[1].epoch
    cluster.start_broker(1)
    commands: list[Any] = [
        BrokerHeartbeat(1, old, cluster.image.offset, want_fence=True),
        AllocateProducerIds(1, old),
        Alter(1, old, ()),
        AssignReplicasToDirs(1, old, ()),
    ]
    for command in commands:
        assert rejection(cluster, command).code is ErrorCode.stale_broker_epoch


def test_commands_of_an_unknown_broker_are_rejected() -> None:
    cluster = Cluster()
    commands: list[Any] = [BrokerHeartbeat(7, 0, 0), AllocateProducerIds(7, 0), Alter(7, 0, ())]
    for command in commands:
        assert rejection(cluster, command).code is ErrorCode.broker_id_not_registered


def test_a_controller_that_registers_again_unchanged_writes_nothing() -> None:
    cluster = Cluster()
    command = RegisterController(3, uuid.UUID(int=5), (), ())
    cluster.submit(command)
    before = cluster.image
    cluster.submit(command)
    assert cluster.image is before
    cluster.submit(replace(command, incarnation_id=uuid.UUID(int=6)))
    assert cluster.image.controllers[3].incarnation_id == uuid.UUID(int=6)


def test_a_no_op_advances_the_log_and_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.image
    cluster.submit(WriteNoOp())
    assert decode_record(cluster.log[-1]) == NoOpRecord()
    assert replace(cluster.image, offset=before.offset) == before


def test_producer_ids_come_in_blocks_of_a_thousand_that_never_overlap() -> None:
    cluster = Cluster(brokers=2)
    command = AllocateProducerIds(1, cluster.image.brokers[1].epoch)
    assert cluster.submit(command) == ProducerIdBlock(0, 1000)
    assert cluster.submit(command) == ProducerIdBlock(1000, 1000)
    other = AllocateProducerIds(2, cluster.image.brokers[2].epoch)
    assert cluster.submit(other) == ProducerIdBlock(2000, 1000)


def test_a_list_of_eligible_leaders_is_kept_without_the_feature_until_one_of_them_leads() -> None:
    cluster = Cluster(brokers=2, features={ELR_VERSION: 1})
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.fence(2)
    cluster.fence(1)
    cluster.write(FeatureLevelRecord(name=ELR_VERSION, feature_level=0))
    cluster.heartbeat(2)
    cluster.submit(ElectLeaders(0, None))
    assert (cluster.partition().isr, cluster.partition().eligible_leader_replicas) == ((), (1,))
    cluster.heartbeat(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.eligible_leader_replicas, changed.last_known_elr) == (
        1,
        (1,),
        (),
        (),
    )
