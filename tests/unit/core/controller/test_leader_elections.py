"""Elections that an administrator asks for, and automatic ones of topics that allow unclean leaders."""

from dataclasses import replace

import pytest
from tests.unit.core.controller.controller_cluster import SETTINGS, Cluster

from ottla.core.controller import leader_elections
from ottla.core.controller.commands import (
    AlteredPartition,
    AlterPartition,
    AlterPartitionTopic,
    ConfigChange,
    ConfigOp,
    ElectionType,
    ElectLeaders,
    FeatureUpdate,
    FeatureUpgradeType,
    IncrementalAlterConfigs,
    UpdateFeatures,
)
from ottla.core.controller.image import ELR_VERSION, ConfigResource, ResourceType
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import NO_LEADER

UNCLEAN = "unclean.leader.election.enable"


def elect(cluster: Cluster, election_type: int, topic: str = "a", index: int = 0) -> ErrorCode:
    (result,) = cluster.submit(ElectLeaders(election_type, ((topic, index),)))
    assert (result.topic, result.partition) == (topic, index)
    return result.error.code


def moved() -> Cluster:
    """Broker 2 leads, because broker 1 was fenced."""
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    cluster.fence(1)
    return cluster


def test_the_preferred_leader_is_elected_when_it_is_in_sync() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.election_not_needed
    cluster.fence(1)
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.preferred_leader_not_available
    cluster.heartbeat(1)
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.preferred_leader_not_available
    before = cluster.partition()
    wanted = AlteredPartition(0, before.leader_epoch, ((2, -1), (1, -1)), 0, before.partition_epoch)
    topic = AlterPartitionTopic(cluster.image.topics["a"].topic_id, (wanted,))
    cluster.submit(AlterPartition(2, cluster.image.brokers[2].epoch, (topic,)))
    assert elect(cluster, ElectionType.PREFERRED) is ErrorCode.none
    after = cluster.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (1, (2, 1), before.leader_epoch + 1)


def test_partitions_that_do_not_exist_have_no_election() -> None:
    cluster = moved()
    for topic, index in (("nope", 0), ("a", 1)):
        assert elect(cluster, ElectionType.PREFERRED, topic, index) is ErrorCode.unknown_topic_or_partition


def test_an_unclean_election_loses_records_only_on_demand() -> None:
    cluster = moved()
    cluster.fence(2)
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.eligible_leaders_not_available
    cluster.heartbeat(1)
    assert cluster.partition().leader == NO_LEADER
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.none
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (1, (1,), 1)
    assert elect(cluster, ElectionType.UNCLEAN) is ErrorCode.election_not_needed


def test_an_election_of_all_partitions_leaves_out_those_that_need_none() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("kept", -1, -1, assignments=((0, (2, 1)),))
    cluster.create("moved", -1, -1, assignments=((0, (1, 2)),))
    cluster.fence(1)
    results = cluster.submit(ElectLeaders(ElectionType.PREFERRED, None))
    assert [(result.topic, result.error.code) for result in results] == [
        ("moved", ErrorCode.preferred_leader_not_available)
    ]


def test_an_unknown_election_type_is_refused() -> None:
    with pytest.raises(KafkaError, match="Unknown election type 2"):
        Cluster().submit(ElectLeaders(2, None))


def test_too_many_elections_in_a_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_elections, "ELECTIONS_PER_REQUEST_MAX", 1)
    cluster = Cluster(brokers=2)
    cluster.create("a", -1, -1, assignments=((0, (1,)), (1, (1,)), (2, (2,))))
    cluster.create("b", -1, -1, assignments=((0, (1, 2)), (1, (1, 2))))
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    before = cluster.image
    with pytest.raises(KafkaError) as rejected:
        cluster.submit(ElectLeaders(ElectionType.UNCLEAN, None))
    assert rejected.value.code is ErrorCode.policy_violation
    assert cluster.image is before


@pytest.mark.parametrize("where", ["topic", "node", "cluster", "configuration"])
def test_a_topic_that_allows_unclean_leaders_gets_one_automatically(where: str) -> None:
    cluster = Cluster(
        brokers=2, settings=replace(SETTINGS, node_id=1, unclean_leader_election=where == "configuration")
    )
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),))
    names = {"node": "1", "cluster": ""}
    if where == "topic":
        resource = ConfigResource(ResourceType.TOPIC, "a")
        cluster.submit(IncrementalAlterConfigs(((resource, (ConfigChange(UNCLEAN, ConfigOp.SET, "true"),)),)))
    elif where in names:
        resource = ConfigResource(ResourceType.BROKER, names[where])
        cluster.submit(IncrementalAlterConfigs(((resource, (ConfigChange(UNCLEAN, ConfigOp.SET, "true"),)),)))
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    changed = cluster.partition()
    assert (changed.leader, changed.isr, changed.leader_recovery_state) == (2, (2,), 1)


def test_the_config_of_the_topic_wins_over_the_default() -> None:
    cluster = Cluster(brokers=2, settings=replace(SETTINGS, unclean_leader_election=True))
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),), configs=((UNCLEAN, "false"),))
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition().leader == NO_LEADER


def test_a_change_of_min_isr_clears_the_eligible_leaders_of_partitions_that_have_a_leader() -> None:
    cluster = Cluster(brokers=2, features={ELR_VERSION: 1})
    for name in ("a", "b"):
        configs = (("min.insync.replicas", "2"),)
        cluster.create(name, -1, -1, assignments=((0, (1, 2)),), configs=configs)
    cluster.create("offline", -1, -1, assignments=((0, (2,)),))
    cluster.fence(2)
    assert [cluster.partition(name).eligible_leader_replicas for name in "ab"] == [(2,), (2,)]
    change = ConfigChange("min.insync.replicas", ConfigOp.SET, "1")
    topic = ConfigResource(ResourceType.TOPIC, "a")
    cluster.submit(IncrementalAlterConfigs(((topic, (change,)),)))
    assert [cluster.partition(name).eligible_leader_replicas for name in "ab"] == [(), (2,)]
    brokers = ConfigResource(ResourceType.BROKER, "")
    cluster.submit(IncrementalAlterConfigs(((brokers, (change,)),)))
    assert cluster.partition("b").eligible_leader_replicas == ()
    assert cluster.partition("offline").eligible_leader_replicas == (2,)


def with_eligible_leader() -> Cluster:
    """Broker 1 leads and is alone in the ISR, broker 2 is eligible: min.insync.replicas is 2."""
    cluster = Cluster(brokers=2, features={ELR_VERSION: 1})
    cluster.create("a", -1, -1, assignments=((0, (1, 2)),), configs=(("min.insync.replicas", "2"),))
    cluster.fence(2)
    assert cluster.partition().eligible_leader_replicas == (2,)
    return cluster


def set_elr(cluster: Cluster, level: int) -> None:
    upgrade_type = FeatureUpgradeType.UPGRADE if level else FeatureUpgradeType.SAFE_DOWNGRADE
    cluster.submit(UpdateFeatures((FeatureUpdate(ELR_VERSION, level, upgrade_type),)))


def test_a_change_of_min_isr_clears_the_eligible_leaders_after_a_downgrade_too() -> None:
    cluster = with_eligible_leader()
    set_elr(cluster, 0)
    topic = ConfigResource(ResourceType.TOPIC, "a")
    change = ConfigChange("min.insync.replicas", ConfigOp.SET, "1")
    cluster.submit(IncrementalAlterConfigs(((topic, (change,)),)))
    assert cluster.partition().eligible_leader_replicas == ()
    cluster.heartbeat(2)  # it is active, and has not caught up
    cluster.fence(1)
    assert cluster.partition().leader == NO_LEADER


def test_an_upgrade_that_sets_min_isr_clears_the_eligible_leaders() -> None:
    cluster = with_eligible_leader()
    set_elr(cluster, 0)
    set_elr(cluster, 1)
    assert cluster.partition().eligible_leader_replicas == ()
