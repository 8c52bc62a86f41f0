"""Changes of very many partitions are decided in parts, so that no part holds the event loop for long."""

from typing import Any

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller import cluster_edit
from ottla.core.controller.cluster_edit import PARTITIONS_PER_PART
from ottla.core.controller.commands import (
    AssignReplicasToDirs,
    BalanceLeaders,
    BrokerHeartbeat,
    ControllerCommand,
    ControllerDecision,
    ElectLostLeaders,
    FenceStaleBrokers,
    HeartbeatReply,
)
from ottla.core.controller.image import ELR_VERSION, PartitionImage
from ottla.core.controller.machine import ControllerMachine
from ottla.protocol.metadata_records.records import NO_LEADER, PartitionChangeRecord

COUNT = 10
PER_PART = 4
PARTS = 3
SESSION_MS = 9000


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_edit, "PARTITIONS_PER_PART", PER_PART)


def large(brokers: int = 3, replicas: int | None = None, **features: int) -> Cluster:
    """Topic `a` has `COUNT` partitions, all led by broker 1."""
    cluster = Cluster(brokers, features=features)
    on = tuple(range(1, (replicas or brokers) + 1))
    cluster.create("a", -1, -1, assignments=tuple((index, on) for index in range(COUNT)))
    return cluster


def partitions(cluster: Cluster) -> list[PartitionImage]:
    return list(cluster.image.topics["a"].partitions.values())


def parts_of(cluster: Cluster, command: ControllerCommand[Any]) -> list[ControllerDecision[Any]]:
    parts = list(cluster.parts(command))
    cluster.machine.validate()
    return parts


def heartbeat(cluster: Cluster, broker_id: int, **more: Any) -> BrokerHeartbeat:
    return BrokerHeartbeat(broker_id, cluster.image.brokers[broker_id].epoch, cluster.image.offset, **more)


def expire_broker_1(cluster: Cluster) -> None:
    cluster.now_ms += SESSION_MS
    for broker_id in (2, 3):
        cluster.heartbeat(broker_id)


def test_a_part_changes_only_as_many_partitions_as_take_some_milliseconds() -> None:
    assert PARTITIONS_PER_PART <= 250


def test_a_stale_broker_leaves_the_isrs_in_parts_and_is_fenced_with_the_last_one() -> None:
    cluster = large()
    expire_broker_1(cluster)
    parts = parts_of(cluster, FenceStaleBrokers())
    assert len(parts) == PARTS
    for part in parts[:-1]:
        assert len(part.records) == PER_PART
        assert all(isinstance(record, PartitionChangeRecord) for record in part.records)
    assert cluster.image.brokers[1].fenced
    assert {(each.leader, each.isr) for each in partitions(cluster)} == {(2, (2, 3))}
    assert cluster.replayed() == cluster.image


@pytest.mark.parametrize("elr", [0, 1])
def test_partitions_that_keep_their_last_replica_are_visited_once(elr: int) -> None:
    cluster = large(replicas=1, **({ELR_VERSION: 1} if elr else {}))
    expire_broker_1(cluster)
    assert len(parts_of(cluster, FenceStaleBrokers())) == PARTS
    assert {each.leader for each in partitions(cluster)} == {NO_LEADER}


def test_a_controller_that_becomes_active_between_two_parts_completes_the_fencing() -> None:
    cluster = large()
    expire_broker_1(cluster)
    next(cluster.parts(FenceStaleBrokers()))
    assert not cluster.image.brokers[1].fenced
    cluster.machine = ControllerMachine(cluster.settings, cluster.image)
    cluster.machine.on_activated(cluster.now_ms)
    expire_broker_1(cluster)
    cluster.submit(FenceStaleBrokers())
    assert cluster.image.brokers[1].fenced
    assert {(each.leader, each.isr) for each in partitions(cluster)} == {(2, (2, 3))}


def test_a_controller_that_becomes_active_between_two_parts_elects_a_broker_that_still_lives() -> None:
    cluster = large(replicas=1, **{ELR_VERSION: 1})
    expire_broker_1(cluster)
    next(cluster.parts(FenceStaleBrokers()))
    assert {each.leader for each in partitions(cluster)} == {NO_LEADER, 1}
    cluster.machine = ControllerMachine(cluster.settings, cluster.image)
    cluster.submit(ElectLostLeaders())  # as every controller does first
    assert {(each.leader, each.isr) for each in partitions(cluster)} == {(1, (1,))}


def test_a_second_stale_broker_that_does_not_fit_is_fenced_by_the_next_command() -> None:
    cluster = large()
    cluster.create("b", -1, -1, assignments=((0, (3,)),))
    cluster.now_ms += SESSION_MS
    cluster.heartbeat(2)
    cluster.submit(FenceStaleBrokers())
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [True, False, False]
    timeout_ms = cluster.machine.next_timeout_ms()
    assert timeout_ms is not None
    assert timeout_ms <= cluster.now_ms
    cluster.submit(FenceStaleBrokers())
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [True, False, True]
    assert cluster.partition("b").leader == NO_LEADER


def test_a_controlled_shutdown_in_parts_waits_until_the_others_know_the_new_leaders() -> None:
    cluster = large()
    # Broker 1 leads only the partitions of the first part, so it leads none any more when the second is decided.
    cluster.fence(1)
    cluster.heartbeat(1)
    cluster.create("b", -1, -1, assignments=((0, (1, 2, 3)),))
    cluster.create("c", -1, -1, assignments=tuple((index, (2, 1, 3)) for index in range(COUNT)))
    before = cluster.image.offset
    parts = parts_of(cluster, heartbeat(cluster, 1, want_shut_down=True))
    assert len(parts) == PARTS
    assert parts[-1].response == HeartbeatReply(True, False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    cluster.heartbeat(2)
    cluster.heartbeat(3, offset=before)
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatReply(True, False, False)
    cluster.heartbeat(3)
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatReply(True, True, True)


def test_a_broker_that_registers_again_leaves_the_isrs_before_the_last_part_registers_it() -> None:
    cluster = large()
    before = cluster.image.brokers[1].epoch
    parts = parts_of(cluster, cluster.registration(1, is_local=True))
    assert len(parts) == PARTS
    broker = cluster.image.brokers[1]
    assert broker.fenced
    assert before < broker.epoch == parts[-1].response == cluster.image.offset + 1 - len(parts[-1].records)
    assert {each.isr for each in partitions(cluster)} == {(2, 3)}


def test_a_directory_that_goes_offline_leaves_the_isrs_in_parts() -> None:
    cluster = Cluster(2)
    cluster.start_broker(1, directories=2)
    cluster.create("a", -1, -1, assignments=tuple((index, (1, 2)) for index in range(COUNT)))
    broker = cluster.image.brokers[1]
    failed = broker.log_dirs[0]
    assert failed is not None
    topic = (cluster.image.topics["a"].topic_id, tuple(range(COUNT)))
    cluster.submit(AssignReplicasToDirs(1, broker.epoch, ((failed, (topic,)),)))
    command = BrokerHeartbeat(1, broker.epoch, cluster.image.offset, offline_log_dirs=(failed,))
    assert len(parts_of(cluster, command)) == PARTS
    assert cluster.image.brokers[1].log_dirs == broker.log_dirs[1:]
    assert {(each.leader, each.isr) for each in partitions(cluster)} == {(2, (2,))}


def test_an_unfenced_broker_is_elected_in_parts_after_it_may_lead() -> None:
    cluster = large(replicas=1)
    cluster.fence(1)
    (unfencing,) = cluster.parts(heartbeat(cluster, 1))
    assert unfencing.response == HeartbeatReply(True, False, False)
    assert not cluster.image.brokers[1].fenced
    assert isinstance(unfencing.follow_up, ElectLostLeaders)
    assert len(parts_of(cluster, unfencing.follow_up)) == PARTS
    assert {each.leader for each in partitions(cluster)} == {1}


def test_leaders_are_balanced_in_parts_until_all_are_preferred() -> None:
    cluster = large()
    cluster.fence(1)
    cluster.heartbeat(1)
    topic_id = cluster.image.topics["a"].topic_id
    for index in range(COUNT):
        cluster.write(PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=(2, 3, 1)))
    parts = parts_of(cluster, BalanceLeaders())
    assert [len(part.records) for part in parts] == [4, 4, 2]
    assert {each.leader for each in partitions(cluster)} == {1}


def test_leaderless_partitions_that_nobody_can_lead_are_visited_in_parts_too() -> None:
    cluster = large(replicas=1)
    cluster.fence(1)
    parts = parts_of(cluster, ElectLostLeaders())
    assert [part.records for part in parts] == [(), (), ()]
