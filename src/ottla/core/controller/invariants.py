"""Invariants of every metadata image."""

from ottla.core.controller.image import ConfigResource, MetadataImage, PartitionImage, TopicImage
from ottla.model.config.definition import ResourceType
from ottla.protocol.metadata_records.records import NO_LEADER


def validate_image(image: MetadataImage) -> None:
    """Raises AssertionError if an invariant does not hold."""
    assert len(image.topics) == len(image.topics_by_id), "topics by name and by id differ"
    for name, topic in image.topics.items():
        assert topic.name == name, f"topic {topic.name} is filed under {name}"
        assert image.topics_by_id.get(topic.topic_id) is topic, f"topic {name} is not filed under its id"
        _validate_topic(image, topic)
    for resource, configs in image.configs.items():
        _validate_configs(image, resource)
        assert configs, f"{resource} is listed without configs"
    for broker_id, broker in image.brokers.items():
        assert broker.broker_id == broker_id, f"broker {broker.broker_id} is filed under {broker_id}"
        assert broker.epoch <= image.offset, f"broker {broker_id} registered after the image's offset"
    directories = [each for broker in image.brokers.values() for each in broker.log_dirs if each is not None]
    assert len(set(directories)) == len(directories), "two brokers have the same directory"
    assert all(level > 0 for level in image.features.values()), "a feature is listed at level 0"
    assert image.next_producer_id >= 0, f"the next producer id is {image.next_producer_id}"


def _validate_topic(image: MetadataImage, topic: TopicImage) -> None:
    assert list(topic.partitions) == list(range(len(topic.partitions))), (
        f"topic {topic.name} has partitions {list(topic.partitions)}"
    )
    assert topic.partitions, f"topic {topic.name} has no partitions"
    for index, partition in topic.partitions.items():
        _validate_partition(image, f"{topic.name}-{index}", partition)


def _validate_partition(image: MetadataImage, name: str, partition: PartitionImage) -> None:
    replicas = set(partition.replicas)
    isr, elr = partition.isr, partition.eligible_leader_replicas
    assert len(replicas) == len(partition.replicas) > 0, f"{name} has replicas {partition.replicas}"
    assert len(partition.directories) == len(partition.replicas), f"{name} has {partition.directories}"
    assert len(set(isr + elr)) == len(isr + elr), f"{name} has in-sync replicas {isr}, eligible ones {elr}"
    assert set(isr + elr) <= replicas, f"{name} has in-sync or eligible replicas {isr + elr} of {replicas}"
    reassigned = set(partition.adding_replicas + partition.removing_replicas)
    assert reassigned <= replicas, f"{name} adds or removes {reassigned}, but has replicas {replicas}"
    assert set(partition.removing_replicas) < replicas, f"{name} removes all of its replicas"
    assert partition.partition_epoch >= partition.leader_epoch >= 0, f"{name} has epochs {partition}"
    if partition.leader == NO_LEADER:
        available = [replica for replica in isr or elr if image.is_available(partition, replica)]
        assert not available, f"{name} has no leader, while {available} could lead"
        return
    assert partition.leader in isr, f"{name} is led by {partition.leader}, which is not in sync"
    assert not partition.last_known_elr, f"{name} has a leader and {partition.last_known_elr}"
    stopped = [replica for replica in isr if not image.is_active(replica)]
    assert not stopped, f"{name} waits for {stopped}, which are in sync but not active"
    assert image.is_available(partition, partition.leader), (
        f"{name} is led by {partition.leader}, which is not available"
    )


def _validate_configs(image: MetadataImage, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC:
        assert resource.name in image.topics, f"topic {resource.name} has configs but does not exist"
