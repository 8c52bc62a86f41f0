"""Images are immutable and share unchanged parts, and two of them can be compared."""

import uuid

import pytest
from tests.unit.core.controller.controller_cluster import Cluster

from ottla.core.controller.changes import changes_since
from ottla.core.controller.commands import (
    ConfigChange,
    ConfigOp,
    CreatePartitions,
    DeleteTopics,
    IncrementalAlterConfigs,
    NewPartitions,
    RegisterController,
    TopicToDelete,
)
from ottla.core.controller.delta import MetadataDelta, ReplayError
from ottla.core.controller.image import ConfigResource, MetadataImage, ResourceType
from ottla.core.controller.snapshot import image_records
from ottla.protocol.metadata_records.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    OpaqueRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

ID = uuid.UUID(int=5)


def test_later_records_do_not_change_an_image() -> None:
    cluster = Cluster()
    cluster.create("a")
    before = cluster.image
    topics, partitions = dict(before.topics), dict(before.topics["a"].partitions)
    cluster.submit(CreatePartitions((NewPartitions("a", 3),)))
    cluster.create("b", configs=(("retention.ms", "1"),))
    cluster.submit(DeleteTopics((TopicToDelete(name="a"),)))
    assert (dict(before.topics), dict(before.topics["a"].partitions)) == (topics, partitions)
    assert before.configs == {}


def test_unchanged_parts_are_the_same_objects_in_the_next_image() -> None:
    cluster = Cluster()
    cluster.create("a", 2)
    cluster.create("b")
    before = cluster.image
    topic_id = before.topics["a"].topic_id
    cluster.write(PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=1))
    after = cluster.image
    assert after.topics["b"] is before.topics["b"]
    assert after.topics["a"].partitions[0] is before.topics["a"].partitions[0]
    assert after.configs is before.configs
    assert after.brokers is before.brokers


def test_changes_contain_created_deleted_and_changed_topics() -> None:
    cluster = Cluster()
    for name in ("kept", "grown", "deleted", "again"):
        cluster.create(name)
    before = cluster.image
    cluster.submit(CreatePartitions((NewPartitions("grown", 2),)))
    cluster.submit(DeleteTopics((TopicToDelete(name="deleted"), TopicToDelete(name="again"))))
    cluster.create("again")
    changes = changes_since(before, cluster.image)
    assert changes.created == (cluster.image.topics["again"],)
    assert changes.deleted == (before.topics["deleted"], before.topics["again"])
    ((topic, partitions),) = changes.changed
    assert topic is cluster.image.topics["grown"]
    assert partitions == ((1, None, topic.partitions[1]),)


def test_changes_contain_configs_and_brokers() -> None:
    cluster = Cluster()
    cluster.create("a", configs=(("retention.ms", "1"),))
    before = cluster.image
    resource = ConfigResource(ResourceType.BROKER, "1")
    change = ConfigChange("log.cleaner.threads", ConfigOp.SET, "2")
    cluster.submit(IncrementalAlterConfigs(((resource, (change,)),)))
    cluster.submit(DeleteTopics((TopicToDelete(name="a"),)))
    cluster.start_broker(2)
    changes = changes_since(before, cluster.image)
    assert changes.configs == (resource, ConfigResource(ResourceType.TOPIC, "a"))
    assert changes.brokers == (2,)
    assert not changes.features


def test_an_image_does_not_differ_from_itself() -> None:
    image = Cluster().image
    assert changes_since(image, image) == ((), (), (), (), (), False)


def test_a_restart_changes_every_partition_that_the_broker_leads() -> None:
    cluster = Cluster()
    cluster.create("a", 2)
    before = cluster.image
    cluster.start_broker(1)
    ((_, partitions),) = changes_since(before, cluster.image).changed
    assert [change.partition for change in partitions] == [0, 1]


def test_the_records_of_an_image_produce_the_same_image() -> None:
    cluster = Cluster(brokers=2)
    cluster.create("a", 3, 2, configs=(("retention.ms", "1"),))
    cluster.submit(RegisterController(1, ID, (), ()))
    cluster.write(
        ProducerIdsRecord(broker_id=1, next_producer_id=5000),
        OpaqueRecord(14, 0, b"a quota"),
        BrokerRegistrationChangeRecord(
            broker_id=2,
            broker_epoch=cluster.image.brokers[2].epoch,
            cordoned_log_dirs=(ID,),
            log_dirs=(ID, None),
        ),
    )
    image = cluster.image
    delta = MetadataDelta(MetadataImage())
    for record in image_records(image):
        delta.replay(record)
    assert delta.image(image.offset, image.epoch) == image


def test_a_snapshot_begins_with_the_metadata_version() -> None:
    cluster = Cluster()
    cluster.write(FeatureLevelRecord(name="a.feature", feature_level=1))
    first = next(image_records(cluster.image))
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_an_aborted_metadata_transaction_has_no_effect() -> None:
    cluster = Cluster()
    before = cluster.image
    cluster.write(BeginTransactionRecord(), TopicRecord(name="a", topic_id=ID))
    assert cluster.machine.in_transaction
    assert "a" in cluster.image.topics
    cluster.write(AbortTransactionRecord(reason="failover"))
    assert not cluster.machine.in_transaction
    assert changes_since(before, cluster.image) == changes_since(before, before)


def test_an_ended_metadata_transaction_takes_effect() -> None:
    cluster = Cluster()
    cluster.write(
        BeginTransactionRecord(name="x"),
        FeatureLevelRecord(name="f", feature_level=1),
        EndTransactionRecord(),
    )
    assert cluster.image.features["f"] == 1


def test_brokers_are_fenced_by_the_records_of_older_releases_too() -> None:
    cluster = Cluster()
    epoch = cluster.image.brokers[1].epoch
    cluster.write(FenceBrokerRecord(id=1, epoch=epoch))
    assert cluster.image.brokers[1].fenced
    cluster.write(UnfenceBrokerRecord(id=1, epoch=epoch), NoOpRecord())
    assert not cluster.image.brokers[1].fenced


def test_eligible_leader_replicas_are_cleared_for_one_topic_or_all() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.create(name)
    for name in ("a", "b"):
        topic_id = cluster.image.topics[name].topic_id
        cluster.write(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, isr=(), leader=-1, eligible_leader_replicas=(1,)
            )
        )
    cluster.write(ClearElrRecord(topic_name="a"))
    elrs = [cluster.image.topics[name].partitions[0].eligible_leader_replicas for name in "ab"]
    assert elrs == [(), (1,)]
    cluster.write(ClearElrRecord(topic_name=""))
    assert cluster.image.topics["b"].partitions[0].eligible_leader_replicas == ()


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="a", topic_id=ID),
        PartitionRecord(
            partition_id=0, topic_id=ID, replicas=(1,), isr=(1,), leader_epoch=0, partition_epoch=0
        ),
        PartitionChangeRecord(partition_id=0, topic_id=ID),
        RemoveTopicRecord(topic_id=ID),
        ClearElrRecord(topic_name="nope"),
        UnregisterBrokerRecord(broker_id=7, broker_epoch=1),
        FenceBrokerRecord(id=1, epoch=12345),
        ProducerIdsRecord(broker_id=1, next_producer_id=0),
        EndTransactionRecord(),
        AbortTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_log_is_an_error(record: MetadataRecord) -> None:
    cluster = Cluster()
    cluster.create("a")
    with pytest.raises(ReplayError):
        cluster.write(record)


def test_deleting_a_config_that_is_not_set_is_no_error() -> None:
    cluster = Cluster()
    cluster.write(ConfigRecord(resource_type=4, resource_name="1", name="x", value=None))
    assert not cluster.image.configs
