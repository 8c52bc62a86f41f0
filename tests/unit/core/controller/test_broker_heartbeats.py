"""Heartbeats keep a broker's session; without them it is fenced, and other brokers lead its partitions."""

import uuid

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller import cluster_edit
from ottla.core.controller.commands import (
    AssignReplicasToDirs,
    BrokerDisconnected,
    BrokerHeartbeat,
    ElectLostLeaders,
    FenceStaleBrokers,
    HeartbeatReply,
    UnregisterBroker,
)
from ottla.core.controller.image import ELR_VERSION
from ottla.core.controller.machine import ControllerMachine
from ottla.protocol.metadata_records.records import NO_LEADER, BrokerRegistrationChangeRecord

SESSION_MS = 9000
GRACE_MS = 1500


def replicated(brokers: int = 3, **more: int) -> Cluster:
    cluster = Cluster(brokers, features=more)
    cluster.create("a", -1, -1, assignments=((0, tuple(range(1, brokers + 1))),))
    return cluster


def expire(cluster: Cluster, *broker_ids: int) -> None:
    """All other brokers keep sending heartbeats."""
    cluster.now_ms += SESSION_MS
    for broker_id, broker in cluster.image.brokers.items():
        if broker_id not in broker_ids and not broker.fenced:
            cluster.heartbeat(broker_id)
    cluster.submit(FenceStaleBrokers())


# Unfencing


def test_a_broker_is_unfenced_when_it_has_applied_its_own_registration() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1)
    assert cluster.heartbeat(1, offset=epoch - 1) == HeartbeatReply(False, True, False)
    assert cluster.image.brokers[1].fenced
    assert cluster.heartbeat(1, offset=epoch) == HeartbeatReply(True, False, False)
    assert not cluster.image.brokers[1].fenced


def test_a_broker_that_wants_to_be_fenced_stays_fenced() -> None:
    cluster = Cluster(brokers=0)
    cluster.register(1)
    assert cluster.heartbeat(1, want_fence=True) == HeartbeatReply(True, True, False)


def test_an_unfenced_broker_leads_the_partitions_that_only_it_can_lead() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1,)), (1, (2,))))
    cluster.create("b", -1, -1, assignments=((0, (2, 1)),))
    cluster.fence(2)
    cluster.fence(1)
    places = (("a", 0), ("a", 1), ("b", 0))
    assert [cluster.partition(*place).leader for place in places] == [-1, -1, -1]
    cluster.heartbeat(1)
    assert [cluster.partition(*place).leader for place in places] == [1, -1, 1]


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    cluster = replicated()
    before = cluster.image
    assert cluster.heartbeat(1) == HeartbeatReply(True, False, False)
    cluster.fence(2)
    after = cluster.image
    cluster.fence(2)
    assert cluster.image is after
    assert after is not before


# Fencing


def test_fencing_moves_leadership_to_the_next_replica_in_sync() -> None:
    cluster = replicated()
    cluster.fence(1)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_epoch) == (2, (2, 3), 1)


def test_a_follower_that_is_fenced_leaves_the_isr_in_the_same_leader_epoch() -> None:
    cluster = replicated(2)
    cluster.fence(2)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_epoch, changed.partition_epoch) == (1, (1,), 0, 1)


def test_the_last_replica_in_sync_stays_in_the_isr_without_leading() -> None:
    cluster = Cluster()
    cluster.create("a")
    cluster.fence(1)
    assert (cluster.partition().leader, cluster.partition().isr) == (NO_LEADER, (1,))
    cluster.heartbeat(1)
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 2)


def test_only_brokers_whose_session_has_expired_are_fenced() -> None:
    cluster = replicated()
    start = cluster.now_ms
    cluster.now_ms += 1000
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.machine.next_timeout_ms() == start + SESSION_MS
    cluster.now_ms = start + SESSION_MS - 1
    cluster.submit(FenceStaleBrokers())
    assert not cluster.image.brokers[1].fenced
    cluster.now_ms += 1
    cluster.submit(FenceStaleBrokers())
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [True, False, False]
    assert cluster.partition().leader == 2
    assert cluster.machine.next_timeout_ms() == start + 1000 + SESSION_MS


def test_brokers_whose_sessions_expire_together_are_fenced_together() -> None:
    cluster = replicated()
    expire(cluster, 1, 2)
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [True, True, False]
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    expire(cluster, 3)
    assert (cluster.partition().leader, cluster.partition().isr) == (NO_LEADER, (3,))
    assert cluster.machine.next_timeout_ms() is None


def test_brokers_that_do_not_fit_into_the_batch_are_fenced_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_edit, "PARTITIONS_PER_PART", 1)
    cluster = replicated()
    cluster.now_ms += SESSION_MS
    cluster.submit(FenceStaleBrokers())
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [True, False, False]
    timeout_ms = cluster.machine.next_timeout_ms()
    assert timeout_ms is not None
    assert timeout_ms <= cluster.now_ms


def test_without_unfenced_brokers_there_is_no_timeout() -> None:
    cluster = Cluster(brokers=0)
    cluster.register(1)
    assert cluster.machine.next_timeout_ms() is None
    cluster.heartbeat(1)
    assert cluster.machine.next_timeout_ms() == cluster.now_ms + SESSION_MS
    cluster.fence(1)
    cluster.submit(UnregisterBroker(1))
    assert cluster.machine.next_timeout_ms() is None


def test_a_controller_that_becomes_active_fences_brokers_that_do_not_report_to_it_soon() -> None:
    cluster = replicated()
    cluster.fence(3)
    machine = ControllerMachine(cluster.settings, cluster.image)
    assert machine.next_timeout_ms() is None
    active_ms = cluster.now_ms + 50_000
    machine.on_activated(active_ms)
    soon_ms = active_ms + cluster.settings.activation_grace_ms
    assert machine.next_timeout_ms() == soon_ms
    assert machine.decide(FenceStaleBrokers(), soon_ms - 1).records == ()
    epoch = cluster.image.brokers[1].epoch
    machine.decide(BrokerHeartbeat(1, epoch, cluster.image.offset), soon_ms - 1)
    fenced = machine.decide(FenceStaleBrokers(), soon_ms).records
    assert [r.broker_id for r in fenced if isinstance(r, BrokerRegistrationChangeRecord)] == [2]
    for offset, record in enumerate(fenced, cluster.image.offset + 1):
        machine.replay(offset, record)
    # Broker 2, which has not reported, and broker 3 may be alive until then.
    assert machine.next_timeout_ms() == active_ms + SESSION_MS
    machine.decide(FenceStaleBrokers(), active_ms + SESSION_MS)
    assert machine.next_timeout_ms() == soon_ms - 1 + SESSION_MS


# Disconnection


def test_a_broker_whose_connection_was_closed_is_fenced_after_the_grace_time() -> None:
    cluster = replicated()
    cluster.submit(BrokerDisconnected(2, cluster.image.brokers[2].epoch))
    assert cluster.machine.next_timeout_ms() == cluster.now_ms + GRACE_MS
    cluster.now_ms += GRACE_MS
    cluster.submit(FenceStaleBrokers())
    assert [broker.fenced for broker in cluster.image.brokers.values()] == [False, True, False]


def test_the_next_heartbeat_restores_the_session_of_a_disconnected_broker() -> None:
    cluster = replicated(2)
    cluster.submit(BrokerDisconnected(2, cluster.image.brokers[2].epoch))
    cluster.now_ms += GRACE_MS - 1
    cluster.heartbeat(2)
    cluster.now_ms += 1
    cluster.submit(FenceStaleBrokers())
    assert not cluster.image.brokers[2].fenced


def test_the_end_of_a_connection_counts_only_if_the_last_heartbeat_came_on_it() -> None:
    cluster = replicated(2)
    epoch = cluster.image.brokers[2].epoch
    cluster.heartbeat(2, connection="old")
    cluster.now_ms += 5
    cluster.heartbeat(1)
    cluster.heartbeat(2, connection="new")
    cluster.submit(BrokerDisconnected(2, epoch, "old"))
    assert cluster.machine.next_timeout_ms() == cluster.now_ms + SESSION_MS
    cluster.submit(BrokerDisconnected(2, epoch, "new"))
    assert cluster.machine.next_timeout_ms() == cluster.now_ms + GRACE_MS


def only_broker_1_in_sync(**features: int) -> Cluster:
    """Broker 2 is active, and the topic allows it to become an unclean leader."""
    cluster = Cluster(2, features=features)
    configs = (("unclean.leader.election.enable", "true"),)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),), configs=configs)
    cluster.fence(2)
    cluster.heartbeat(2)
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))
    return cluster


@pytest.mark.parametrize("features", [{}, {ELR_VERSION: 1}])
def test_a_closed_connection_is_no_reason_for_an_unclean_election(features: dict[str, int]) -> None:
    cluster = only_broker_1_in_sync(**features)
    timeout_ms = cluster.now_ms + SESSION_MS
    cluster.submit(BrokerDisconnected(1, cluster.image.brokers[1].epoch))
    cluster.now_ms += GRACE_MS
    cluster.submit(FenceStaleBrokers())
    assert cluster.image.brokers[1].fenced
    cluster.submit(ElectLostLeaders())
    cluster.fence(2)
    cluster.heartbeat(2)
    assert cluster.partition().leader == NO_LEADER
    assert cluster.machine.next_timeout_ms() == timeout_ms
    cluster.now_ms = timeout_ms
    cluster.submit(FenceStaleBrokers())
    assert (cluster.partition().leader, cluster.partition().leader_recovery_state) == (2, 1)


def test_a_suspected_broker_that_returns_leads_without_loss() -> None:
    cluster = only_broker_1_in_sync()
    cluster.submit(BrokerDisconnected(1, cluster.image.brokers[1].epoch))
    cluster.now_ms += GRACE_MS
    cluster.submit(FenceStaleBrokers())
    cluster.start_broker(1)
    assert (cluster.partition().leader, cluster.partition().leader_recovery_state) == (1, 0)


def test_a_new_controller_waits_a_session_before_an_unclean_election() -> None:
    cluster = only_broker_1_in_sync()
    cluster.submit(BrokerDisconnected(1, cluster.image.brokers[1].epoch))
    cluster.now_ms += GRACE_MS
    cluster.submit(FenceStaleBrokers())
    cluster.machine = ControllerMachine(cluster.settings, cluster.image)
    cluster.machine.on_activated(cluster.now_ms)
    cluster.submit(ElectLostLeaders())
    assert cluster.partition().leader == NO_LEADER
    cluster.now_ms += SESSION_MS
    cluster.heartbeat(2)
    cluster.submit(FenceStaleBrokers())
    assert cluster.partition().leader == 2


def test_a_disconnection_never_makes_a_session_longer() -> None:
    cluster = Cluster()
    start = cluster.now_ms
    cluster.now_ms += SESSION_MS - 10
    cluster.submit(BrokerDisconnected(1, cluster.image.brokers[1].epoch))
    assert cluster.machine.next_timeout_ms() == start + SESSION_MS


def test_the_disconnection_of_an_earlier_process_or_an_unknown_broker_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.machine.next_timeout_ms()
    cluster.submit(BrokerDisconnected(1, cluster.image.brokers[1].epoch - 1))
    cluster.submit(BrokerDisconnected(7, 0))
    assert cluster.machine.next_timeout_ms() == before


def test_a_live_broker_that_was_fenced_unfences_itself_with_its_next_heartbeat() -> None:
    cluster = replicated()
    expire(cluster, 1)
    assert cluster.image.brokers[1].fenced
    cluster.heartbeat(1)
    assert cluster.image.brokers[1].is_active
    assert cluster.partition().leader == 2


# Controlled shutdown


def test_a_broker_that_leads_nothing_may_shut_down_at_once() -> None:
    cluster = replicated()
    assert cluster.heartbeat(2, want_shut_down=True) == HeartbeatReply(True, True, True)
    assert cluster.image.brokers[2].fenced
    assert cluster.partition().isr == (1, 3)


def test_a_broker_shuts_down_when_the_others_know_that_it_leads_nothing() -> None:
    cluster = replicated()
    before = cluster.image.offset
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatReply(True, False, False)
    assert (cluster.image.brokers[1].in_controlled_shutdown, cluster.image.brokers[1].fenced) == (True, False)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2, 3))
    needed = cluster.image.offset
    cluster.heartbeat(2)
    cluster.heartbeat(3, offset=before)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.create("b")
    cluster.heartbeat(3, offset=needed)
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatReply(True, True, True)
    assert cluster.image.brokers[1].fenced
    assert cluster.heartbeat(1, want_shut_down=True) == HeartbeatReply(True, True, True)


@pytest.mark.parametrize("elr_version", [0, 1])
def test_a_partition_with_one_replica_does_not_block_the_shutdown(elr_version: int) -> None:
    cluster = Cluster(brokers=2, features={ELR_VERSION: elr_version} if elr_version else {})
    cluster.create("a", -1, -1, assignments=((0, (1,)),))
    cluster.heartbeat(1, want_shut_down=True)
    changed = cluster.partition()
    expected = ((), (1,), (1,)) if elr_version else ((1,), (), ())
    assert changed.leader == NO_LEADER
    assert (changed.isr, changed.eligible_leader_replicas, changed.last_known_elr) == expected
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.start_broker(1)
    assert cluster.partition().leader == 1


def test_the_only_broker_of_a_cluster_may_shut_down() -> None:
    cluster = Cluster()
    cluster.create("a")
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_controlled_shutdown_goes_on_with_another_controller() -> None:
    cluster = replicated()
    cluster.heartbeat(1, want_shut_down=True)
    cluster.machine = ControllerMachine(cluster.settings, cluster.image)
    cluster.machine.on_activated(cluster.now_ms)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_stays_in_sync_while_the_others_may_be_dead() -> None:
    """Otherwise only dead replicas would be eligible. If none of them stopped cleanly, the last leader would be
    elected (KIP-966), which may have lost its power, although this broker has all records.
    """
    cluster = replicated(**{ELR_VERSION: 1})
    for broker_id in (1, 2):
        cluster.submit(BrokerDisconnected(broker_id, cluster.image.brokers[broker_id].epoch))
    assert cluster.heartbeat(3, want_shut_down=True) == HeartbeatReply(True, False, False)
    assert cluster.partition().isr == (1, 2, 3)
    expire(cluster, 1, 2)
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))
    cluster.heartbeat(3, want_shut_down=True)
    cluster.start_broker(1)
    cluster.start_broker(2)
    assert cluster.partition().leader == NO_LEADER
    assert cluster.partition().eligible_leader_replicas == (3,)


def test_a_shutdown_waits_until_a_new_controller_has_heard_from_all_brokers() -> None:
    cluster = replicated()
    cluster.machine = ControllerMachine(cluster.settings, cluster.image)
    cluster.machine.on_activated(cluster.now_ms)
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    cluster.heartbeat(1)
    assert not cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert cluster.partition().isr == (1, 2, 3)
    cluster.heartbeat(2)
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down


def test_a_broker_that_wants_to_be_fenced_and_to_shut_down_need_not_wait() -> None:
    cluster = replicated()
    assert cluster.heartbeat(1, want_fence=True, want_shut_down=True) == HeartbeatReply(True, True, True)
    assert cluster.partition().leader == 2


def test_a_process_that_was_fenced_in_its_controlled_shutdown_does_not_serve_again() -> None:
    cluster = replicated()
    cluster.heartbeat(1, want_shut_down=True)
    expire(cluster, 1)
    assert cluster.heartbeat(1).is_fenced
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_shuts_down_gets_no_new_replicas() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.heartbeat(1, want_shut_down=True)
    cluster.create("b", 4)
    assert {cluster.partition("b", index).replicas for index in range(4)} == {(2,)}


# Directories


REPLICAS = (("a", 0), ("a", 1), ("b", 0))


def with_two_directories() -> tuple[Cluster, tuple[uuid.UUID, ...]]:
    """The replicas a-0 and b-0 are in the first directory of broker 1, a-1 is in the second."""
    cluster = Cluster(brokers=0)
    cluster.start_broker(1, directories=2)
    cluster.start_broker(2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)), (1, (1, 2))))
    cluster.create("b", -1, -1, assignments=((0, (1,)),))
    directories = tuple(each for each in cluster.image.brokers[1].log_dirs if each is not None)
    a, b = (cluster.image.topics[name].topic_id for name in "ab")
    assigned = ((directories[0], ((a, (0,)), (b, (0,)))), (directories[1], ((a, (1,)),)))
    cluster.submit(AssignReplicasToDirs(1, cluster.image.brokers[1].epoch, assigned))
    return cluster, directories


def test_the_leadership_of_replicas_in_a_directory_that_failed_moves() -> None:
    cluster, directories = with_two_directories()
    reply = cluster.heartbeat(1, offline_log_dirs=directories[:1])
    assert not reply.is_fenced
    assert cluster.image.brokers[1].log_dirs == directories[1:]
    leaders = [cluster.partition(*place).leader for place in REPLICAS]
    assert leaders == [2, 1, NO_LEADER]
    assert [cluster.partition(*place).isr for place in REPLICAS] == [(2,), (1, 2), (1,)]


def test_a_directory_that_was_reported_before_changes_nothing() -> None:
    cluster, directories = with_two_directories()
    cluster.heartbeat(1, offline_log_dirs=directories[:1])
    before = cluster.image
    cluster.heartbeat(1, offline_log_dirs=(*directories[:1], uuid.UUID(int=5 << 70)))
    assert cluster.image is before


def test_a_replica_in_an_offline_directory_is_not_elected_when_its_broker_is_unfenced() -> None:
    cluster, directories = with_two_directories()
    cluster.fence(1)
    cluster.heartbeat(1, offline_log_dirs=directories[:1])
    assert [cluster.partition(*place).leader for place in REPLICAS] == [2, 2, NO_LEADER]


def test_a_broker_without_an_online_directory_is_fenced() -> None:
    cluster, directories = with_two_directories()
    assert cluster.heartbeat(1, offline_log_dirs=directories).is_fenced
    assert [cluster.partition(*place).leader for place in REPLICAS] == [2, 2, NO_LEADER]
    before = cluster.image
    assert cluster.heartbeat(1, offline_log_dirs=directories).is_fenced
    assert cluster.image is before
